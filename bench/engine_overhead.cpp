// How much CPU time does a block cost in the planner, the claim board and the dispatcher, when
// tiers and copies cost nothing? Bars: plan + claim + complete <= 2 us a block on one thread, also
// at 16 sources and 64 source sets; a step of 10,000 blocks planned in <= 5 ms. Usage:
// engine_overhead [--check]   one JSON row a case; with --check exit code 1 above a bar
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "step/dispatcher.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kBlocks = 10'000;
constexpr std::uint32_t kBlockBytes = 4096;
constexpr int kRepeats = 15;
constexpr double kStepUsPerBlockMax = 2.0, kPlanMsMax = 5.0;

Nanos now_ns() { return SteadyClock::instance().now(); }

/// Completes every read at once and moves no byte.
class FreeTier final : public Tier {
 public:
  explicit FreeTier(std::size_t index) {
    traits_.kind = "free";
    traits_.name = "free" + std::to_string(index);
    traits_.device_id = traits_.name;
    traits_.in_flight_max = 256;
    traits_.trusted = true;
  }
  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t) override { return failure(Code::kNoSpace, "read only"); }
  void free(SlotRef) override {}
  std::size_t submit_reads(std::span<const ReadOp> ops) override {
    for (const ReadOp& op : ops) done_.push_back({op.id, Code::kOk, op.size_bytes});
    return ops.size();
  }
  std::size_t submit_writes(std::span<const WriteOp>) override { return 0; }
  std::size_t poll(std::span<Completion> out) override {
    const std::size_t count = std::min(out.size(), done_.size());
    std::copy_n(done_.begin(), count, out.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }
  int wait_fd() const override { return -1; }
  Nanos next_event() const override { return 0; }
  const std::byte* view(SlotRef) const override { return nullptr; }
  std::size_t changes(std::span<CatalogChange>) override { return 0; }
  void recheck(const CatalogChange&) override {}
  Status chore() override { return Status::ok(); }
  TierReport report() const override { return {}; }

 private:
  TierTraits traits_;
  std::vector<Completion> done_;
};

class FreePlacer final : public Placer {
 public:
  bool submit(const PlaceJob& job) override {
    done_.push_back({job.id, true});
    return true;
  }
  std::size_t poll(std::span<PlaceDone> out) override {
    const std::size_t count = std::min(out.size(), done_.size());
    std::copy_n(done_.begin(), count, out.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
  }

 private:
  std::vector<PlaceDone> done_;
};

class NullHost final : public DispatcherHost {
 public:
  void on_unhold(const BlockKey&, const Replica&) override {}
  void on_mismatch(const BlockKey&, const Replica&) override {}
  void on_hit(const BlockKey&, SourceId) override {}
};

class CountingSink final : public StepSink {
 public:
  void on_block(std::uint32_t, std::uint32_t, BlockOutcome outcome, bool, Nanos) override {
    ++reported;
    hits += outcome.state == BlockState::kHit ? 1 : 0;
  }
  void on_step_end(Nanos) override { ended = true; }
  void on_drained(Nanos) override { drained = true; }
  std::uint32_t reported = 0, hits = 0;
  bool ended = false, drained = false;
};

/// Gives each key the replicas of its set; the key's second word is the set's mask.
class MaskFinder final : public ReplicaFinder {
 public:
  ReplicaSet find_and_hold(const BlockKey& key) override {
    std::uint64_t mask = 0;
    std::memcpy(&mask, key.bytes.data() + 8, sizeof mask);
    ReplicaSet set;
    for (; mask != 0; mask &= mask - 1) {
      Replica& replica = set.at[set.count++];
      replica.tier = static_cast<std::uint8_t>(std::countr_zero(mask));
      replica.size_bytes = kBlockBytes;
    }
    return set;
  }
};

/// `count` different masks of one to four of `sources` sources.
std::vector<std::uint64_t> masks_of(std::uint32_t sources, std::size_t count) {
  std::vector<std::uint64_t> masks;
  const std::uint64_t end = std::uint64_t{1} << sources;
  const std::uint64_t stride = std::max<std::uint64_t>(1, end / (4 * count));
  for (std::uint64_t mask = end - 1; mask > 0 && masks.size() < count;
       mask -= std::min(mask, stride)) {
    if (std::popcount(mask) <= static_cast<int>(kSourcesPerBlockMax)) masks.push_back(mask);
  }
  for (std::uint64_t mask = 1; mask < end && masks.size() < count; ++mask) {
    const bool fits = std::popcount(mask) <= static_cast<int>(kSourcesPerBlockMax);
    if (fits && std::find(masks.begin(), masks.end(), mask) == masks.end()) masks.push_back(mask);
  }
  return masks;
}

struct Step {
  std::vector<std::byte> memory = std::vector<std::byte>(std::size_t{kBlocks} * kBlockBytes);
  std::vector<Span> spans = std::vector<Span>(kBlocks);
  std::vector<BlockRequest> blocks = std::vector<BlockRequest>(kBlocks);
  std::vector<LoadRequest> requests;

  explicit Step(const std::vector<std::uint64_t>& masks) {
    for (std::uint32_t i = 0; i < kBlocks; ++i) {
      spans[i] = {memory.data() + std::size_t{i} * kBlockBytes, kBlockBytes};
      BlockKey key;
      const std::uint64_t mixed = (i + 1) * 0x9E3779B97F4A7C15ULL;
      std::memcpy(key.bytes.data(), &mixed, sizeof mixed);
      std::memcpy(key.bytes.data() + 8, &masks[i % masks.size()], sizeof masks[0]);
      blocks[i] = {key, kBlockBytes, {&spans[i], 1}};
    }
    constexpr std::uint32_t kPerRequest = 100;
    for (std::uint32_t i = 0; i < kBlocks; i += kPerRequest) {
      requests.push_back({{&blocks[i], kPerRequest}, {}});
    }
  }
};

struct Sample {
  double plan_ms = 0, loop_us_per_block = 0;
  bool complete = false;
};

Sample run_once(const Step& step, std::uint32_t sources) {
  std::vector<std::unique_ptr<FreeTier>> tiers;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<StepDispatcher::Source> list;
  for (std::uint32_t i = 0; i < sources; ++i) {
    tiers.push_back(std::make_unique<FreeTier>(i));
    devices.push_back(std::make_unique<Device>(
        Device::Options{tiers[i]->traits().device_id, kBlockBytes, 1e9, kMillisecond, 256}));
    list.push_back({tiers[i].get(), devices[i].get()});
  }
  auto pool = BufferPool::open({std::uint64_t{32} << 20U, kBlockBytes, -1});
  if (!pool) return {};
  FreePlacer placer;
  NullHost host;
  StepDispatcher dispatcher({}, list, **pool, placer, host);
  MaskFinder finder;
  const auto sink = std::make_shared<CountingSink>();

  const Nanos began = now_ns();
  auto plan = plan_step({step.requests, 0}, finder);
  if (!plan) return {};
  std::vector<SourceView> views(sources);
  apply_policy(*plan, Mode{}, views);
  const Nanos planned = now_ns();
  if (!dispatcher.begin(std::move(*plan), sink, planned)) return {};
  std::array<Completion, 64> done;
  std::array<PlaceDone, 64> placed;
  const Nanos give_up = planned + 10 * kSecond;
  for (Nanos now = planned; !sink->ended && now < give_up; now = now_ns()) {
    for (SourceId source = 0; source < sources; ++source) {
      const std::size_t count = tiers[source]->poll(done);
      for (std::size_t i = 0; i < count; ++i) dispatcher.on_read_complete(source, done[i], now);
    }
    const std::size_t count = placer.poll(placed);
    for (std::size_t i = 0; i < count; ++i) dispatcher.on_placed(placed[i], now);
    dispatcher.timers(now);
    dispatcher.claims(now);
  }
  const Nanos ended = now_ns();
  return {static_cast<double>(planned - began) * 1e-6,
          static_cast<double>(ended - planned) * 1e-3 / kBlocks, sink->hits == kBlocks};
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// True when both bars hold.
bool run_case(std::uint32_t sources, std::size_t sets) {
  const Step step(masks_of(sources, sets));
  std::vector<double> plans, loops;
  bool complete = true;
  for (int i = 0; i < kRepeats; ++i) {
    const Sample sample = run_once(step, sources);
    complete = complete && sample.complete;
    plans.push_back(sample.plan_ms);
    loops.push_back(sample.loop_us_per_block);
  }
  const double plan_ms = median(plans), loop_us = median(loops);
  const double total_us = loop_us + plan_ms * 1e3 / kBlocks;
  std::printf(
      "{\"bench\": \"engine_overhead\", \"sources\": %u, \"source_sets\": %zu, "
      "\"blocks\": %u, \"repeats\": %d, \"plan_ms\": %.3f, \"loop_us_per_block\": %.3f, "
      "\"total_us_per_block\": %.3f, \"complete\": %s}\n",
      sources, sets, kBlocks, kRepeats, plan_ms, loop_us, total_us, complete ? "true" : "false");
  return complete && plan_ms <= kPlanMsMax && total_us <= kStepUsPerBlockMax;
}

}  // namespace
}  // namespace kvstream

int main(int argc, char** argv) {
  const bool check = argc > 1 && std::string_view(argv[1]) == "--check";
  bool good = true;
  good &= kvstream::run_case(1, 1);
  good &= kvstream::run_case(2, 3);
  good &= kvstream::run_case(4, 15);
  good &= kvstream::run_case(16, 64);
  return check && !good ? 1 : 0;
}
