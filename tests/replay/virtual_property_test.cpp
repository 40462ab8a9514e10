// Small random jobs under every setting: they end, their accounts close, they repeat to the digit.
#include <gtest/gtest.h>

#include <cstdlib>

#include "replay/virtual_rig.hpp"

namespace kvstream {
namespace {

using nlohmann::json;

struct Setting {
  ReadPolicy policy = ReadPolicy::kCompletion;
  WriteTiming writes = WriteTiming::kDeferred;
  Replication replication = Replication::kOne;
  LoadMode loads = LoadMode::kSync;
  std::uint32_t shards = 1, ranks = 1;
  std::uint64_t seed = 1;

  std::string text() const {
    return fmt::format(
        "policy {}, writes {}, replication {}, loads {}, shards {}, ranks {}, seed {}",
        static_cast<int>(policy), static_cast<int>(writes), static_cast<int>(replication),
        static_cast<int>(loads), shards, ranks, seed);
  }
};

bool full() { return std::getenv("KVSTREAM_TEST_FULL") != nullptr; }

/// Caps so small that blocks are evicted while they are wanted.
VirtualOptions options_of(const Setting& setting) {
  VirtualOptions options = virtual_options(setting.ranks, setting.shards);
  const std::uint64_t slots = 12ULL * setting.shards;
  options.tiers = {
      virtual_tier("host", Visibility::kRank, slots, 4000, 0),
      virtual_tier("nvme", Visibility::kNode, 2 * slots, 400),
      virtual_tier("pfs", Visibility::kJob, 4 * slots * setting.ranks, 100, 2 * kMillisecond)};
  Random random(setting.seed * 77);
  for (auto& tier : options.tiers) {
    if (random.unit() < 0.5) tier.model.disturbance = random.unit();
    if (random.unit() < 0.5) tier.model.concurrency = 4;
    if (random.unit() < 0.5) tier.model.burst_ns = 2 * kMillisecond;
  }
  options.settings.record_steps = true;
  options.settings.lease_ns = 2 * kSecond;
  options.serving.lease_ns = 2 * kSecond;
  options.serving.scheduler.load_mode = setting.loads;
  if (random.unit() < 0.5) options.serving.arrivals = Arrivals::kTrace;
  if (random.unit() < 0.3) options.serving.scheduler.kv.capacity_tokens = 700;
  if (random.unit() < 0.3) options.slow = {{"nvme", 300 * kMillisecond, 0.1}};
  return options;
}

json play(const Setting& setting, std::size_t requests_a_rank) {
  VirtualOptions options = options_of(setting);
  const auto requests =
      virtual_requests(setting.seed, requests_a_rank * setting.ranks, setting.ranks);
  const auto earlier = virtual_requests(setting.seed + 1000, 10, setting.ranks);
  const auto work = prepare_virtual(options, requests,
                                    setting.seed % 2 == 0 ? earlier : std::vector<TraceRequest>{},
                                    setting.replication);
  Mode mode;
  mode.policy = setting.policy;
  mode.writes = setting.writes;
  mode.replication = setting.replication;
  return json_of(options, play_or_die(options, work, mode));
}

void expect_sound(const json& run, std::size_t requests) {
  EXPECT_EQ(run.at("requests").get<std::size_t>() + run.at("rejected").get<std::size_t>(),
            requests);
  EXPECT_EQ(run.at("rejected"), 0);
  EXPECT_TRUE(run.at("checks").at("accounts_closed")) << run.at("checks").dump();
  EXPECT_EQ(run.at("ttft_s").at("count").get<std::size_t>(), requests);
  EXPECT_EQ(run.at("e2e_s").at("count").get<std::size_t>(), requests);
  ASSERT_TRUE(run.at("bound").is_object());
  EXPECT_EQ(run.at("bound").at("error"), "");
}

TEST(VirtualProperty, EverySettingEndsAllRequestsAndClosesItsAccounts) {
  const std::uint64_t seeds = full() ? 12 : 3;
  std::uint64_t evicted = 0, hits = 0, cases = 0;
  for (const ReadPolicy policy : {ReadPolicy::kSerial, ReadPolicy::kPooled, ReadPolicy::kStatic,
                                  ReadPolicy::kShortestQueue, ReadPolicy::kCompletion}) {
    for (const WriteTiming writes :
         {WriteTiming::kDeferred, WriteTiming::kAfterForward, WriteTiming::kInline}) {
      for (const Replication replication :
           {Replication::kNone, Replication::kOne, Replication::kAll}) {
        for (const LoadMode loads : {LoadMode::kSync, LoadMode::kAsync}) {
          for (const std::uint32_t shards : {1U, 2U}) {
            for (const std::uint32_t ranks : {1U, 3U}) {
              for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
                ++cases;
                const Setting setting{policy, writes, replication,        loads,
                                      shards, ranks,  seed * 1000 + cases};
                SCOPED_TRACE(setting.text());
                const std::size_t requests = full() ? 40 : 12;
                const json run = play(setting, requests);
                expect_sound(run, requests * ranks);
                for (const auto& count : run.at("health").at("evicted")) {
                  evicted += count.get<std::uint64_t>();
                }
                hits += run.at("blocks").at("hits").get<std::uint64_t>();
                if (testing::Test::HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(evicted, cases) << "the caps are too large to test anything";
  EXPECT_GT(hits, 10 * cases);
}

TEST(VirtualProperty, TheSameSeedGivesTheSameReportToTheLastDigitAndAnotherDoesNot) {
  const std::uint64_t seeds = full() ? 30 : 4;
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    Setting setting;
    setting.seed = seed;
    setting.ranks = 3;
    setting.loads = seed % 2 == 0 ? LoadMode::kAsync : LoadMode::kSync;
    setting.shards = 1 + seed % 2;
    SCOPED_TRACE(setting.text());
    const std::string first = play(setting, 20).dump();
    EXPECT_EQ(first, play(setting, 20).dump());
    setting.seed += 500;
    EXPECT_NE(first, play(setting, 20).dump());
  }
}

TEST(VirtualProperty, SerialLoadsThatOutliveTheirLeasesCloseTheAccounts) {
  Setting setting;
  setting.policy = ReadPolicy::kSerial;
  setting.loads = LoadMode::kAsync;
  setting.seed = 2;
  VirtualOptions options = options_of(setting);
  options.slow.clear();
  options.serving.scheduler.kv.capacity_tokens = 1 << 16;
  options.serving.scheduler.kv.prefix_cache = PrefixCache::kOff;
  options.serving.in_system_max = 64;
  options.serving.scheduler.sequences_max = 64;
  options.settings.lease_ns = options.serving.lease_ns = 50 * kMillisecond;
  options.tiers = {virtual_tier("pfs", Visibility::kJob, 60, 20)};
  const auto requests = virtual_requests(3, 40);
  const auto work = prepare_virtual(options, requests, requests, Replication::kOne);
  Mode mode;
  mode.policy = ReadPolicy::kSerial;
  const json run = json_of(options, play_or_die(options, work, mode));
  expect_sound(run, 40);
  EXPECT_GT(run.at("step_read_s").at("count").get<std::uint64_t>(), 5U);
}

TEST(VirtualProperty, AStepDeadlineThatPassesClosesTheAccounts) {
  std::uint64_t late = 0;
  for (std::uint64_t seed = 1; seed <= (full() ? 40U : 6U); ++seed) {
    Setting setting;
    setting.seed = seed;
    setting.loads = seed % 2 == 0 ? LoadMode::kAsync : LoadMode::kSync;
    SCOPED_TRACE(setting.text());
    VirtualOptions options = options_of(setting);
    options.serving.step_deadline_ns = 3 * kMillisecond;
    const auto requests = virtual_requests(seed, 40);
    const auto work = prepare_virtual(options, requests, requests, Replication::kAll);
    const json run = json_of(options, play_or_die(options, work, {}));
    expect_sound(run, 40);
    late += run.at("blocks").at("late").get<std::uint64_t>() +
            run.at("blocks").at("miss").get<std::uint64_t>();
  }
  EXPECT_GT(late, 0U);
}

}  // namespace
}  // namespace kvstream
