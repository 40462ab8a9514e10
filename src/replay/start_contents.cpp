#include "replay/start_contents.hpp"

#include <algorithm>

#include "replay/agreement.hpp"
#include "replay/prefill.hpp"
#include "replay/virtual_run.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

constexpr Nanos kSetup_ns = 300 * kSecond;
constexpr Nanos kFill_ns = 3600 * kSecond;

}  // namespace

StartContents::StartContents(const ReplayOptions& options, const ReplayParts& parts,
                             std::span<const TraceRequest> mine)
    : options_(options),
      parts_(parts),
      group_(*parts.group),
      mine_(mine),
      wanted_(parts.engines.size()) {}

/// Each rank knows the slots of all, so that all simulate the same.
Result<PrefillAnswer> StartContents::simulate() {
  json mine = {{"node", group_.node()}, {"slots", json::array()}};
  const std::uint64_t slot = (options_.block_bytes_max + 4095ULL) & ~4095ULL;
  for (std::size_t tier = 0; tier < parts_.tiers.size(); ++tier) {
    // Shards have equal shares; what every one of them can hold is what counts.
    std::uint64_t capacity_bytes = ~std::uint64_t{0};
    for (const Engine* engine : parts_.engines) {
      capacity_bytes =
          std::min(capacity_bytes, engine->stats().tiers.at(tier).report.capacity_bytes);
    }
    mine["slots"].push_back(capacity_bytes / slot);
  }
  auto gathered = group_.all_gather(mine.dump(), kSetup_ns);
  if (!gathered) return failure(gathered.error());
  PrefillProblem problem;
  problem.requests = options_.earlier;
  problem.replication = options_.replication;
  std::vector<std::string> nodes;
  for (const auto& tier : parts_.tiers) {
    PrefillTier fill{tier.visibility, tier.persistent, 1, {}};
    if (tier.spec.throttle.write_bytes_per_s > 0) {
      fill.write_weight = static_cast<double>(tier.spec.throttle.write_bytes_per_s);
    }
    problem.tiers.push_back(std::move(fill));
  }
  for (const auto& bytes : gathered->bytes) {
    const auto theirs = json::parse(bytes, nullptr, false);
    if (!theirs.is_object()) return failure(Code::kUnavailable, "a rank named no capacities");
    const std::string node = theirs.at("node");
    const auto at = std::find(nodes.begin(), nodes.end(), node);
    problem.node_of_rank.push_back(static_cast<std::uint32_t>(at - nodes.begin()));
    if (at == nodes.end()) nodes.push_back(node);
    for (std::size_t i = 0; i < problem.tiers.size(); ++i) {
      problem.tiers[i].slots_of_rank.push_back(theirs.at("slots").at(i).get<std::uint64_t>());
    }
  }
  return simulate_prefill(problem);
}

std::vector<BlockPlace> StartContents::hold_all() const {
  std::vector<BlockPlace> places;
  for (const auto& request : mine_) {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      places.push_back({request.keys[i], request.sizes_bytes[i], options_.held_by});
    }
  }
  return places;
}

void StartContents::want(const std::vector<BlockPlace>& places) {
  for (std::size_t shard = 0; shard < wanted_.size(); ++shard) {
    wanted_[shard] = places;
    for (auto& place : wanted_[shard]) {
      place.key = shard_key(place.key, static_cast<std::uint32_t>(shard));
    }
  }
}

/// Oldest first where the order is known; a slot that could not be had is not asked for again.
void StartContents::keep_what_is_there() {
  for (std::size_t shard = 0; shard < wanted_.size(); ++shard) {
    auto there = own_contents(*parts_.engines[shard]);
    if (options_.prefill != Prefill::kOff) {
      std::vector<BlockPlace> kept;
      for (const auto& place : wanted_[shard]) {
        const auto at = std::lower_bound(
            there.begin(), there.end(), place,
            [](const BlockPlace& a, const BlockPlace& b) { return a.key < b.key; });
        if (at != there.end() && at->key == place.key) kept.push_back(*at);
      }
      there = std::move(kept);
    }
    wanted_[shard] = std::move(there);
  }
}

/// What the earlier requests would have left is written; then what is there is what each side
/// starts from.
Status StartContents::fill() {
  if (options_.prefill != Prefill::kOff) {
    std::uint64_t distinct = 0;
    if (options_.prefill == Prefill::kOn) {
      auto answer = simulate();
      if (!answer) return answer.error();
      want(answer->of_rank[group_.rank()]);
      distinct = answer->distinct_blocks;
    } else {
      want(hold_all());
    }
    if (Status status = put_back(); !status.is_ok()) return status;
    std::uint64_t blocks = 0, bytes = 0;
    for (const auto& places : wanted_) {
      blocks += places.size();
      for (const auto& place : places) bytes += place.size_bytes;
    }
    auto blocks_all = count_all(group_, blocks);
    auto bytes_all = count_all(group_, bytes);
    if (!blocks_all || !bytes_all) return {Code::kTimedOut, "a rank did not answer in time"};
    report_["requests"] = options_.earlier.size();
    report_["distinct_blocks"] = distinct;
    report_["blocks"] = *blocks_all;
    report_["bytes"] = *bytes_all;
  }
  if (restores(options_)) keep_what_is_there();
  const std::uint64_t all_tiers = (std::uint64_t{1} << parts_.tiers.size()) - 1;
  copies_everywhere_ =
      std::all_of(parts_.engines.begin(), parts_.engines.end(), [&](const Engine* engine) {
        const auto entries = engine->contents();
        return !entries.empty() &&
               std::all_of(entries.begin(), entries.end(), [&](const ContentEntry& entry) {
                 return ((entry.own | entry.others) & all_tiers) == all_tiers;
               });
      });
  return Status::ok();
}

Status StartContents::put_back() {
  // Every tier in use and nothing in the way, whatever the side before had.
  Status status;
  for (Engine* engine : parts_.engines) {
    if (Status set = engine->set_mode(Mode{}); status.is_ok()) status = set;
  }
  status = agree(group_, status);
  if (!status.is_ok()) return status;
  if (parts_.full_speed) parts_.full_speed(true);
  PutReport put;
  // Shard after shard: what is inside is agreed on by all ranks, in this order.
  for (std::size_t shard = 0; shard < wanted_.size() && status.is_ok(); ++shard) {
    auto report = put_contents(*parts_.engines[shard], group_, wanted_[shard],
                               put_options("filling the tiers"));
    status = agree(group_, report ? Status::ok() : report.error(), kFill_ns);
    if (!report) continue;
    put.missing += report->missing;
    put.leftover += report->leftover;
  }
  if (parts_.full_speed) parts_.full_speed(false);
  if (!status.is_ok()) return status;
  // What was written again is not younger than what stayed: the order of eviction is put back too.
  for (std::size_t shard = 0; shard < wanted_.size(); ++shard) {
    std::vector<BlockKey> keys;
    keys.reserve(wanted_[shard].size());
    for (const auto& place : wanted_[shard]) keys.push_back(place.key);
    parts_.engines[shard]->touch(keys);
  }
  auto missing = count_all(group_, put.missing);
  auto leftover = count_all(group_, put.leftover);
  if (!missing || !leftover) return {Code::kTimedOut, "a rank did not answer in time"};
  if (report_.is_null()) report_ = json::object();
  report_["copies_missing"] = std::max(report_.value("copies_missing", std::uint64_t{0}), *missing);
  report_["copies_left_over"] =
      std::max(report_.value("copies_left_over", std::uint64_t{0}), *leftover);
  return Status::ok();
}

PutOptions StartContents::put_options(const char* what) const {
  PutOptions put;
  put.block_bytes_max = options_.block_bytes_max;
  put.queue_bytes = options_.write_queue_bytes;
  put.clock = parts_.clock;
  put.stop = parts_.stop;
  put.progress = [this, what](std::uint64_t done, std::uint64_t all) {
    if (parts_.progress) parts_.progress(what, done, all);
  };
  return put;
}

}  // namespace kvstream
