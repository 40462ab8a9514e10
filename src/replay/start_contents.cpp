#include "replay/start_contents.hpp"

#include <algorithm>

#include "replay/agreement.hpp"
#include "replay/prefill.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

constexpr Nanos kSetup_ns = 300 * kSecond;
constexpr Nanos kFill_ns = 3600 * kSecond;

}  // namespace

StartContents::StartContents(const ReplayOptions& options, const ReplayParts& parts,
                             std::span<const TraceRequest> mine)
    : options_(options), parts_(parts), group_(*parts.group), engine_(*parts.engine), mine_(mine) {}

/// Each rank knows the slots of all, so that all simulate the same.
Result<PrefillAnswer> StartContents::simulate() {
  json mine = {{"node", group_.node()}, {"slots", json::array()}};
  for (const auto& tier : engine_.stats().tiers) {
    const std::uint64_t slot = (options_.block_bytes_max + 4095ULL) & ~4095ULL;
    mine["slots"].push_back(tier.report.capacity_bytes / slot);
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

void StartContents::hold_all() {
  for (const auto& request : mine_) {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      wanted_.push_back({request.keys[i], request.sizes_bytes[i], options_.held_by});
    }
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
      wanted_ = std::move(answer->of_rank[group_.rank()]);
      distinct = answer->distinct_blocks;
    } else {
      hold_all();
    }
    if (Status status = put_back(); !status.is_ok()) return status;
    std::uint64_t bytes = 0;
    for (const auto& place : wanted_) bytes += place.size_bytes;
    auto blocks_all = count_all(group_, wanted_.size());
    auto bytes_all = count_all(group_, bytes);
    if (!blocks_all || !bytes_all) return {Code::kTimedOut, "a rank did not answer in time"};
    report_["requests"] = options_.earlier.size();
    report_["distinct_blocks"] = distinct;
    report_["blocks"] = *blocks_all;
    report_["bytes"] = *bytes_all;
  }
  if (restores(options_)) {
    // Oldest first where the order is known; a slot that could not be had is not asked for again.
    auto there = own_contents(engine_);
    if (options_.prefill != Prefill::kOff) {
      std::vector<BlockPlace> kept;
      for (const auto& place : wanted_) {
        const auto at = std::lower_bound(
            there.begin(), there.end(), place,
            [](const BlockPlace& a, const BlockPlace& b) { return a.key < b.key; });
        if (at != there.end() && at->key == place.key) kept.push_back(*at);
      }
      there = std::move(kept);
    }
    wanted_ = std::move(there);
  }
  const std::uint64_t all_tiers = (std::uint64_t{1} << parts_.tiers.size()) - 1;
  const auto entries = engine_.contents();
  copies_everywhere_ = !entries.empty() &&
                       std::all_of(entries.begin(), entries.end(), [&](const ContentEntry& entry) {
                         return ((entry.own | entry.others) & all_tiers) == all_tiers;
                       });
  return Status::ok();
}

Status StartContents::put_back() {
  // Every tier in use and nothing in the way, whatever the side before had.
  if (Status status = agree(group_, engine_.set_mode(Mode{})); !status.is_ok()) return status;
  if (parts_.full_speed) parts_.full_speed(true);
  auto report = put_contents(engine_, group_, wanted_, put_options("filling the tiers"));
  Status status = agree(group_, report ? Status::ok() : report.error(), kFill_ns);
  if (parts_.full_speed) parts_.full_speed(false);
  if (!status.is_ok()) return status;
  // What was written again is not younger than what stayed: the order of eviction is put back too.
  std::vector<BlockKey> keys;
  keys.reserve(wanted_.size());
  for (const auto& place : wanted_) keys.push_back(place.key);
  engine_.touch(keys);
  auto missing = count_all(group_, report->missing);
  auto leftover = count_all(group_, report->leftover);
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
