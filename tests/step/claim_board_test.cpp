#include "step/claim_board.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace kvstream {
namespace {

constexpr std::uint32_t kBytes = 1000;

struct Board {
  explicit Board(std::uint32_t blocks, SourceMask sources = 0xf) {
    board.reset(blocks, sources, unread_of.data());
    states.live = sources;
    for (std::size_t s = 0; s < kSourcesMax; ++s) {
      states.rate[s] = 1;
      states.device[s] = static_cast<std::uint8_t>(s);
    }
  }
  void put(std::uint32_t block, SourceMask mask, ClaimBoard::Band band = ClaimBoard::Band::kFront) {
    board.put(block, mask, kBytes, band);
  }
  std::vector<std::uint32_t> claim(ClaimBoard::Ask ask) {
    std::vector<std::uint32_t> out(64);
    const auto claimed = board.claim(ask, states, out);
    declined = claimed.declined;
    out.resize(claimed.count);
    return out;
  }
  std::vector<std::uint32_t> claim(SourceId source, std::uint32_t most = 1) {
    ClaimBoard::Ask ask;
    ask.source = source;
    ask.blocks_max = most;
    return claim(ask);
  }
  std::array<std::uint32_t, kSourcesMax> unread_of{};
  ClaimBoard board;
  SourceStates states;
  bool declined = false;
};

using Blocks = std::vector<std::uint32_t>;

TEST(ClaimBoard, GivesTheBlocksOfASetInRequestOrder) {
  Board b(5000);
  for (std::uint32_t block : {4999U, 70U, 4096U, 64U, 3U}) b.put(block, 1);
  EXPECT_EQ(b.claim(0, 2), (Blocks{3, 64}));
  b.put(3, 1);
  EXPECT_EQ(b.claim(0, 10), (Blocks{3, 70, 4096, 4999}));
  EXPECT_EQ(b.board.unread_blocks(), 0U);
  EXPECT_EQ(b.board.unread_bytes(), 0U);
}

TEST(ClaimBoard, GivesNothingThatTheSourceDoesNotHold) {
  Board b(2);
  b.put(0, 2);
  EXPECT_TRUE(b.claim(0).empty());
  EXPECT_FALSE(b.declined);
  EXPECT_EQ(b.claim(1), Blocks{0});
}

TEST(ClaimBoard, Rule2TakesTheSetWithTheGreatestPressureFirst) {
  // Source 0 alone must read blocks 10..19; block 0 anybody can read.
  Board b(20, 3);
  b.put(0, 3);
  for (std::uint32_t block = 10; block < 20; ++block) b.put(block, 1);
  EXPECT_EQ(b.claim(0), Blocks{10});
  // The other source has block 0 for itself.
  EXPECT_EQ(b.claim(1), Blocks{0});
}

TEST(ClaimBoard, Rule3TakesTheEarliestRequestWhenNoSetOfItsOwnPresses) {
  // Source 1 is the bottleneck; for source 0 no set comes near that pressure.
  Board b(40, 7);
  b.states.rate[0] = 10;
  for (std::uint32_t block = 20; block < 40; ++block) b.put(block, 2);
  b.put(5, 1);
  b.put(4, 5);
  b.put(6, 1);
  EXPECT_EQ(b.claim(0), Blocks{4});
  EXPECT_EQ(b.claim(0), Blocks{5});
}

TEST(ClaimBoard, Rule3LeavesBlocksBehindAnOpenQuestionToTheLast) {
  Board b(3);
  b.put(0, 1, ClaimBoard::Band::kBehind);
  b.put(2, 1, ClaimBoard::Band::kFront);
  ClaimBoard::Ask ask;
  ask.blocks_max = 8;
  EXPECT_EQ(b.claim(ask), Blocks{2});
  EXPECT_TRUE(b.claim(ask).empty());
  ask.band = ClaimBoard::Band::kBehind;
  EXPECT_EQ(b.claim(ask), Blocks{0});
}

TEST(ClaimBoard, Rule4ASlowSourceDeclinesTheLastBlock) {
  Board b(1, 3);
  b.states.rate[1] = 0.1;
  b.put(0, 3);
  EXPECT_TRUE(b.claim(1).empty());
  EXPECT_TRUE(b.declined);
  EXPECT_EQ(b.claim(0), Blocks{0});
}

TEST(ClaimBoard, Rule4TheEarliestFinisherNeverDeclines) {
  // The naive form, own time against what remains over all rates, lets both decline here.
  Board b(1, 3);
  b.put(0, 3);
  EXPECT_EQ(b.claim(0), Blocks{0});
  EXPECT_FALSE(b.declined);
}

TEST(ClaimBoard, Rule4AnOnlySourceNeverDeclines) {
  Board b(1, 3);
  b.states.rate[1] = 1e-6;
  b.put(0, 2);
  EXPECT_EQ(b.claim(1), Blocks{0});
  // Nor one whose fellow is not alive.
  b.put(0, 3);
  b.states.live = 2;
  ++b.states.version;
  EXPECT_EQ(b.claim(1), Blocks{0});
}

TEST(ClaimBoard, Rule4ASlowSourceHelpsWhileMuchIsLeft) {
  Board b(100, 3);
  b.states.rate[1] = 0.1;
  for (std::uint32_t block = 0; block < 100; ++block) b.put(block, 3);
  EXPECT_EQ(b.claim(1), Blocks{0});  // done at 10 blocks' time; the fast one needs 99
  while (b.board.unread_blocks() > 8) b.claim(0);
  EXPECT_TRUE(b.claim(1).empty());
}

TEST(ClaimBoard, Rule4CountsTheLatencyOfAFarSource) {
  Board b(4, 3);
  b.states.rate = {2, 2};
  b.states.latency_ns[1] = 100 * kBytes;
  for (std::uint32_t block = 0; block < 4; ++block) b.put(block, 3);
  EXPECT_TRUE(b.claim(1).empty());
  EXPECT_TRUE(b.declined);
}

TEST(ClaimBoard, Rule4CountsWhatIsInFlight) {
  Board b(1, 3);
  b.states.rate[1] = 0.5;
  b.put(0, 3);
  EXPECT_TRUE(b.claim(1).empty());
  b.states.queued_bytes[0] = 10 * kBytes;  // the fast one has a long queue
  EXPECT_EQ(b.claim(1), Blocks{0});
}

TEST(ClaimBoard, DoesNotAddTheRateOfOneDeviceTwice) {
  Board b(1, 7);
  b.states.device[1] = 0;
  EXPECT_DOUBLE_EQ(b.states.rate_of(3), 1);
  EXPECT_DOUBLE_EQ(b.states.rate_of(7), 2);
}

TEST(ClaimBoard, WithoutAdaptionOnlyTheOrderOfRequestsCounts) {
  Board b(20, 3);
  b.states.rate[1] = 0.01;
  b.put(0, 3);
  for (std::uint32_t block = 10; block < 20; ++block) b.put(block, 2);
  ClaimBoard::Ask ask;
  ask.source = 1;
  ask.adaptive = false;
  EXPECT_EQ(b.claim(ask), Blocks{0});
}

TEST(ClaimBoard, AClaimOfManyBlocksStaysInOneSet) {
  Board b(8, 3);
  for (std::uint32_t block = 0; block < 8; ++block) b.put(block, block % 2 == 0 ? 1 : 3);
  const Blocks claimed = b.claim(0, 6);
  ASSERT_EQ(claimed.size(), 4U);
  for (std::uint32_t block : claimed) EXPECT_EQ(block % 2, claimed.front() % 2);
}

TEST(ClaimBoard, HasNeverMoreThan64SetsAndLosesNoBlock) {
  std::mt19937_64 random(7);
  for (const std::size_t sources : {16U, 40U, 64U}) {
    const SourceMask all = sources == 64 ? ~SourceMask{0} : (SourceMask{1} << sources) - 1;
    Board b(2000, all);
    std::vector<SourceMask> masks(2000);
    for (std::uint32_t block = 0; block < 2000; ++block) {
      while (masks[block] == 0) {
        masks[block] = 0;
        for (int i = 0; i < 3; ++i) masks[block] |= SourceMask{1} << (random() % sources);
      }
      b.put(block, masks[block]);
    }
    EXPECT_LE(b.board.count_sets(), kSourceSetsMax);
    std::set<std::uint32_t> seen;
    for (int idle = 0; idle < 5000 && b.board.unread_blocks() > 0;) {
      const auto source = static_cast<SourceId>(random() % sources);
      const Blocks claimed = b.claim(source, 4);
      idle = claimed.empty() ? idle + 1 : 0;
      for (std::uint32_t block : claimed) {
        EXPECT_NE(masks[block] & bit(source), 0U);
        EXPECT_TRUE(seen.insert(block).second);
      }
    }
    EXPECT_EQ(seen.size(), 2000U) << sources;
    for (std::uint32_t left : b.unread_of) EXPECT_EQ(left, 0U);
  }
}

/// The board's sums against sums made afresh.
TEST(ClaimBoard, KeepsTheSameOrderAsAPlainImplementation) {
  std::mt19937_64 random(11);
  for (int run = 0; run < 200; ++run) {
    const std::uint32_t blocks = 60;
    Board b(blocks, 0xf);
    for (std::size_t s = 0; s < 4; ++s) {
      b.states.rate[s] = 0.1 + static_cast<double>(random() % 100) / 25;
      b.states.queued_bytes[s] = static_cast<double>(random() % 5) * kBytes;
      b.states.latency_ns[s] = static_cast<double>(random() % 3) * kBytes;
    }
    std::vector<SourceMask> mask(blocks, 0);
    std::set<std::uint32_t> unread;
    for (int act = 0; act < 200; ++act) {
      const auto block = static_cast<std::uint32_t>(random() % blocks);
      if (random() % 2 == 0 && unread.count(block) == 0) {
        mask[block] = 1 + random() % 15;
        b.put(block, mask[block]);
        unread.insert(block);
        continue;
      }
      if (random() % 8 == 0) {
        b.board.take(block);
        unread.erase(block);
        continue;
      }
      const auto source = static_cast<SourceId>(random() % 4);
      // Plainly: pressure of each set, threshold, ties by order, tail rule.
      std::set<SourceMask> sets;
      for (std::uint32_t u : unread) sets.insert(mask[u]);
      const auto rate = [&](SourceMask m) { return b.states.rate_of(m); };
      const auto pressure = [&](SourceMask m) {
        double bytes = 0;
        for (std::uint32_t u : unread)
          if ((mask[u] & ~m) == 0) bytes += kBytes;
        return bytes / rate(m);
      };
      double greatest = static_cast<double>(unread.size()) * kBytes / rate(0xf);
      for (SourceMask m : sets) greatest = std::max(greatest, pressure(m));
      std::vector<SourceMask> open;
      for (SourceMask m : sets)
        if ((m & bit(source)) != 0) open.push_back(m);
      const bool weigh = open.size() > 1;
      int expected = -1;
      while (!open.empty()) {
        const auto score = [&](SourceMask m) {
          return !weigh || pressure(m) < kPressureShare * greatest ? 0.0 : pressure(m);
        };
        double best = 0;
        for (SourceMask m : open) best = std::max(best, score(m));
        int first = -1;
        for (std::uint32_t u : unread)
          if (std::find(open.begin(), open.end(), mask[u]) != open.end() &&
              score(mask[u]) >= 0.95 * best) {
            first = static_cast<int>(u);
            break;
          }
        const SourceMask chosen = mask[static_cast<std::size_t>(first)];
        const SourceMask others = chosen & ~bit(source);
        double earliest = 1e300, left = 0, rates = 0;
        SourceMask reach = others;
        for (SourceId o = 0; o < 4; ++o)
          if ((others & bit(o)) != 0) earliest = std::min(earliest, b.states.finish_ns(o, kBytes));
        for (std::uint32_t u : unread)
          if ((mask[u] & others) != 0) left += kBytes, reach |= mask[u];
        for (SourceId o = 0; o < 4; ++o)
          if (o != source && (reach & bit(o)) != 0)
            left += b.states.queued_bytes[o], rates += b.states.rate[o];
        const double own = b.states.finish_ns(source, kBytes);
        if (others != 0 && own > earliest && own > left / rates) {
          open.erase(std::find(open.begin(), open.end(), chosen));
          continue;
        }
        expected = first;
        break;
      }
      const Blocks claimed = b.claim(source);
      ASSERT_EQ(claimed.empty() ? -1 : static_cast<int>(claimed[0]), expected)
          << "run " << run << " act " << act;
      if (expected >= 0) unread.erase(static_cast<std::uint32_t>(expected));
    }
  }
}

}  // namespace
}  // namespace kvstream
