// An engine over tiers in memory, some of them faulty, and a caller that saves and loads.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvstream/engine.hpp"
#include "tiers/faulty_tier.hpp"
#include "tiers/host_tier.hpp"
#include "tiers/tier_wrapper.hpp"

namespace kvstream {

constexpr std::uint32_t kTestBlock = 64 << 10;

inline BlockKey test_key(std::uint64_t number) {
  BlockKey key;
  for (std::size_t i = 0; i < 8; ++i) key.bytes[i] = static_cast<std::uint8_t>(number >> (8 * i));
  key.bytes[8] = static_cast<std::uint8_t>(number * 31);
  return key;
}

inline std::vector<std::byte> test_bytes(std::uint64_t number, std::size_t size = kTestBlock) {
  std::vector<std::byte> bytes(size);
  std::uint64_t state = number * 0x9E3779B97F4A7C15ULL + 1;
  for (auto& b : bytes) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    b = static_cast<std::byte>(state >> 56);
  }
  return bytes;
}

/// Lets a tier in memory stand for a drive: its bytes are neither trusted nor to be had in place.
class DriveLike final : public TierWrapper {
 public:
  DriveLike(std::unique_ptr<Tier> inner, std::string device) : TierWrapper(std::move(inner)) {
    traits_ = TierWrapper::traits();
    traits_.addressable = false;
    traits_.trusted = false;
    traits_.persistent = true;
    traits_.device_id = std::move(device);
  }
  const TierTraits& traits() const override { return traits_; }
  const std::byte* view(SlotRef) const override { return nullptr; }

 private:
  TierTraits traits_;
};

/// Where a test's faults are steered from: set before the engine is opened, read by its thread.
struct TierPlan {
  std::string name;
  FaultPlan faults;
  std::uint64_t cap_bytes = 64ULL * kTestBlock;
  bool memory = false;  ///< a plain host tier
};

class EngineFixture : public testing::Test {
 protected:
  void open(const std::vector<TierPlan>& plans, const Mode& mode = {}, Settings settings = {}) {
    settings.pool_bytes =
        settings.pool_bytes == Settings{}.pool_bytes ? 128ULL * kTestBlock : settings.pool_bytes;
    settings.block_bytes_max = kTestBlock;
    TierContext context;
    context.clock = &clock_;
    std::vector<TierPart> parts;
    for (const auto& plan : plans) parts.push_back(part_of(plan));
    auto opened = Engine::open({settings, mode, context}, std::move(parts));
    ASSERT_TRUE(opened) << opened.error().to_string();
    engine_ = std::move(*opened);
    names_.clear();
    for (const auto& plan : plans) names_.push_back(plan.name);
  }

  TierPart part_of(const TierPlan& plan) {
    TierPart part;
    part.spec.name = plan.name;
    part.spec.kind = "host";
    part.spec.cap_bytes = plan.cap_bytes;
    part.make = host_tier_factory();
    if (!plan.memory) {
      part.wrap = [this, plan](std::unique_ptr<Tier> tier) -> Result<std::unique_ptr<Tier>> {
        auto drive = std::make_unique<DriveLike>(std::move(tier), "drive:" + plan.name);
        return std::make_unique<FaultyTier>(std::move(drive), plan.faults, clock_);
      };
    }
    return part;
  }

  Nanos soon(Nanos from_now = 10 * kSecond) const { return clock_.now() + from_now; }

  /// Saves blocks first..first+count-1 and waits until they are published or dropped.
  SaveCounts save(std::uint64_t first, std::uint64_t count, std::uint64_t tiers = 0,
                  std::uint32_t size = kTestBlock) {
    std::vector<std::vector<std::byte>> bytes;
    std::vector<ConstSpan> spans;
    for (std::uint64_t i = 0; i < count; ++i) bytes.push_back(test_bytes(first + i, size));
    for (const auto& b : bytes) spans.push_back({b.data(), b.size()});
    std::vector<SaveBlock> blocks;
    for (std::uint64_t i = 0; i < count; ++i) {
      blocks.push_back({test_key(first + i), size, {&spans[i], 1}, static_cast<std::uint32_t>(i)});
    }
    const auto ticket = engine_->save_step({blocks, tiers});
    EXPECT_TRUE(ticket->wait_done(soon()));
    return ticket->counts();
  }

  /// Destinations of one step: one request for each list of keys.
  struct Load {
    std::vector<std::vector<std::uint64_t>> numbers;
    std::vector<std::vector<std::vector<std::byte>>> into;
    std::vector<std::vector<Span>> spans;
    std::vector<std::vector<BlockRequest>> blocks;
    std::vector<LoadRequest> requests;
    Ticket ticket;
  };
  static constexpr std::byte kUntouched{0x5A};

  void start(Load& load, std::vector<std::vector<std::uint64_t>> numbers,
             std::vector<LeaseToken> leases = {}, Nanos deadline = 0,
             std::uint32_t size = kTestBlock) {
    load.numbers = std::move(numbers);
    const auto count = load.numbers.size();
    load.into.resize(count);
    load.spans.resize(count);
    load.blocks.resize(count);
    for (std::size_t r = 0; r < count; ++r) {
      for (std::size_t i = 0; i < load.numbers[r].size(); ++i) {
        load.into[r].emplace_back(size, kUntouched);
      }
      for (auto& memory : load.into[r]) load.spans[r].push_back({memory.data(), memory.size()});
      for (std::size_t i = 0; i < load.numbers[r].size(); ++i) {
        load.blocks[r].push_back({test_key(load.numbers[r][i]), size, {&load.spans[r][i], 1}});
      }
      load.requests.push_back({load.blocks[r], r < leases.size() ? leases[r] : LeaseToken{}});
    }
    auto ticket = engine_->load_step({load.requests, deadline});
    ASSERT_TRUE(ticket) << ticket.error().to_string();
    load.ticket = *ticket;
  }

  /// Hits have the right bytes, everything else has kept its own.
  void check_bytes(const Load& load) {
    const auto& result = load.ticket->result();
    for (std::size_t r = 0; r < load.numbers.size(); ++r) {
      for (std::size_t i = 0; i < load.numbers[r].size(); ++i) {
        const auto state = result.requests[r].blocks[i].state;
        const auto& got = load.into[r][i];
        if (state == BlockState::kHit) {
          EXPECT_EQ(got, test_bytes(load.numbers[r][i], got.size()))
              << "request " << r << " block " << i;
        } else if (state != BlockState::kLate) {
          EXPECT_EQ(got, std::vector<std::byte>(got.size(), kUntouched))
              << "request " << r << " block " << i;
        }
      }
    }
  }

  /// DESIGN section 9, rule 5; leases and holds must have ended.
  void expect_accounts_closed() {
    auto stats = engine_->stats();
    // A lone read that measures a device's latency may be under way.
    for (const Nanos deadline = soon();
         stats.slabs_free != stats.slabs_all && clock_.now() < deadline;) {
      std::this_thread::yield();
      stats = engine_->stats();
    }
    EXPECT_EQ(stats.looked_up, stats.requested + stats.recomputed_by_choice + stats.never_loaded);
    EXPECT_EQ(stats.requested, stats.hits + stats.misses + stats.late + stats.cancelled);
    EXPECT_EQ(stats.offered, stats.published + stats.dropped);
    EXPECT_EQ(stats.leases, 0U);
    EXPECT_EQ(stats.holds, 0U);
    EXPECT_EQ(stats.reads_in_flight, 0U);
    EXPECT_EQ(stats.writes_in_flight, 0U);
    EXPECT_EQ(stats.slabs_free, stats.slabs_all);
    std::uint64_t hits = 0;
    for (const auto& tier : stats.tiers) {
      hits += tier.hits;
      EXPECT_EQ(tier.report.used_bytes + tier.report.free_bytes, tier.report.capacity_bytes);
    }
    EXPECT_EQ(hits, stats.hits);
  }

  /// Waits until a read of a step has reached a tier.
  void wait_until_reading() {
    const Nanos deadline = soon();
    while (engine_->stats().reads_in_flight == 0 && clock_.now() < deadline) {
      std::this_thread::yield();
    }
  }

  /// Waits until nothing is under way, so that the accounts can be looked at.
  void settle(const Load& load) {
    const Nanos deadline = soon();
    while (!load.ticket->drained() && clock_.now() < deadline) std::this_thread::yield();
    EXPECT_TRUE(load.ticket->drained());
  }

  const Clock& clock_ = SteadyClock::instance();
  std::vector<std::string> names_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace kvstream
