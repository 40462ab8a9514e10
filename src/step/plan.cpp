#include "step/plan.hpp"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <string>

namespace kvstream {
namespace {

constexpr std::uint32_t kNotHeld = ~std::uint32_t{0};

/// A place where a block is wanted, in the order of the request.
struct Wanted {
  std::uint32_t block = 0;
  std::uint32_t request = 0;
  std::uint32_t position = 0;
  std::span<const Span> into;
};

std::string where(std::size_t request, std::size_t position) {
  return "block " + std::to_string(position) + " of request " + std::to_string(request);
}

Status check_spans(const BlockRequest& block, std::size_t request, std::size_t position) {
  if (block.size_bytes == 0)
    return {Code::kInvalidArgument, where(request, position) + " has no bytes"};
  if (block.into.size() > kSpansMax)
    return {Code::kInvalidArgument,
            where(request, position) + " has " + std::to_string(block.into.size()) +
                " destination spans; at most " + std::to_string(kSpansMax) + " are possible"};
  std::uint64_t sum = 0;
  for (const Span& span : block.into) {
    if (span.data == nullptr && span.size_bytes > 0)
      return {Code::kInvalidArgument, where(request, position) + " has a span without memory"};
    sum += span.size_bytes;
  }
  if (sum != block.size_bytes)
    return {Code::kInvalidArgument, where(request, position) + ": its spans add up to " +
                                        std::to_string(sum) + " B, not to its " +
                                        std::to_string(block.size_bytes) + " B"};
  return Status::ok();
}

/// A key of the step: hashed once, in the first walk over the request.
struct KnownKey {
  std::uint32_t size_bytes = 0;
  std::uint32_t block = kNotHeld;
  bool looked_up = false;
};

/// Everything that the caller can have got wrong, before the first hold is taken. `key_of` has the
/// number of each wanted block's key, in order.
Status check(const StepRequest& request, std::vector<KnownKey>& keys,
             std::vector<std::uint32_t>& key_of) {
  std::size_t count_blocks = 0;
  for (const LoadRequest& load : request.requests) count_blocks += load.blocks.size();
  keys.reserve(count_blocks);
  key_of.reserve(count_blocks);
  absl::flat_hash_map<BlockKey, std::uint32_t> numbers;
  numbers.reserve(count_blocks);
  for (std::size_t r = 0; r < request.requests.size(); ++r) {
    const auto blocks = request.requests[r].blocks;
    for (std::size_t p = 0; p < blocks.size(); ++p) {
      if (Status status = check_spans(blocks[p], r, p); !status.is_ok()) return status;
      const auto [at, fresh] =
          numbers.try_emplace(blocks[p].key, static_cast<std::uint32_t>(keys.size()));
      if (fresh) keys.push_back({blocks[p].size_bytes, kNotHeld, false});
      const std::uint32_t known = keys[at->second].size_bytes;
      if (known != blocks[p].size_bytes)
        return {Code::kInvalidArgument, where(r, p) + " is wanted with " +
                                            std::to_string(blocks[p].size_bytes) + " B and with " +
                                            std::to_string(known) + " B in one step"};
      key_of.push_back(at->second);
    }
  }
  return Status::ok();
}

void add_block(StepPlan& plan, const BlockRequest& wanted, std::uint32_t request,
               const ReplicaSet& replicas) {
  PlannedBlock& block = plan.blocks.emplace_back();
  block.key = wanted.key;
  block.size_bytes = wanted.size_bytes;
  block.order = static_cast<std::uint32_t>(plan.blocks.size() - 1);
  block.request = request;
  block.replicas = replicas;
  std::size_t claimable = 0;
  for (const Replica& replica : replicas.all()) {
    const SourceMask source = bit(replica.tier);
    // A copy of another size is not this block, whatever its key says.
    if (replica.size_bytes != wanted.size_bytes || ((block.claimable | block.spares) & source))
      continue;
    if (claimable++ < kSourcesPerBlockMax)
      block.claimable |= source;
    else
      block.spares |= source;
  }
}

/// Lays the destinations and spans of each block side by side, as a placement wants them.
void lay_out(StepPlan& plan, std::span<const Wanted> wanted) {
  std::uint32_t next = 0;
  for (const Wanted& want : wanted) ++plan.blocks[want.block].count_destinations;
  for (PlannedBlock& block : plan.blocks) {
    block.first_destination = next;
    next += block.count_destinations;
    block.count_destinations = 0;
  }
  plan.destinations.resize(next);
  std::vector<std::uint32_t> from(next);
  std::size_t count_spans = 0;
  for (std::uint32_t i = 0; i < wanted.size(); ++i) {
    PlannedBlock& block = plan.blocks[wanted[i].block];
    from[block.first_destination + block.count_destinations++] = i;
    count_spans += wanted[i].into.size();
  }
  plan.spans.reserve(count_spans);
  for (std::uint32_t d = 0; d < next; ++d) {
    const Wanted& want = wanted[from[d]];
    plan.destinations[d] = {want.request, want.position,
                            static_cast<std::uint32_t>(plan.spans.size()),
                            static_cast<std::uint32_t>(want.into.size())};
    plan.spans.insert(plan.spans.end(), want.into.begin(), want.into.end());
  }
}

}  // namespace

Result<StepPlan> plan_step(const StepRequest& request, ReplicaFinder& finder) {
  std::vector<KnownKey> keys;
  std::vector<std::uint32_t> key_of;
  if (Status status = check(request, keys, key_of); !status.is_ok())
    return failure(std::move(status));
  StepPlan plan;
  plan.deadline = request.deadline > 0 ? request.deadline : kNever;
  plan.client = request.client;
  plan.blocks.reserve(keys.size());
  plan.requests.reserve(request.requests.size());
  std::vector<Wanted> wanted;
  wanted.reserve(key_of.size());
  std::size_t first_of_request = 0;
  for (std::uint32_t r = 0; r < request.requests.size(); ++r) {
    const LoadRequest& load = request.requests[r];
    const auto count = static_cast<std::uint32_t>(load.blocks.size());
    StepPlan::Request& entry = plan.requests.emplace_back();
    entry.count_blocks = entry.first_miss = count;
    for (std::uint32_t p = 0; p < count; ++p) {
      const BlockRequest& block = load.blocks[p];
      KnownKey& key = keys[key_of[first_of_request + p]];
      if (!key.looked_up) {
        key.looked_up = true;
        const ReplicaSet replicas = finder.find_and_hold(block.key);
        if (replicas.count > 0) {
          key.block = static_cast<std::uint32_t>(plan.blocks.size());
          add_block(plan, block, r, replicas);
        }
      }
      if (key.block == kNotHeld) {
        entry.first_miss = p;
        // A lease promised it; it went between the look-up and now.
        entry.miss_reason = load.lease ? MissReason::kSourcesLost : MissReason::kNotFound;
        break;
      }
      wanted.push_back({key.block, r, p, block.into});
    }
    first_of_request += count;
  }
  lay_out(plan, wanted);
  return plan;
}

}  // namespace kvstream
