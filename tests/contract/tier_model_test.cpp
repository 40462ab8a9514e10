// The contract's longest test: random operations on a tier, held against a model of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include "contract/tier_contract.hpp"
#include "core/checksum.hpp"

namespace kvstream::test {
namespace {

enum class Kind : std::uint8_t { kRead, kWrite };

struct Flight {
  Kind kind = Kind::kRead;
  std::uint64_t number = 0;  ///< of the block
  AlignedBytes bytes;
  std::vector<Span> spans;
};

struct Block {
  Written written;
  bool published = false;
  int reads = 0;
};

/// What the tier should hold, and the operations that are out.
class Model {
 public:
  Model(Tier& tier, TierDriver& driver, std::uint64_t seed, std::uint32_t block_bytes)
      : tier_(tier), driver_(driver), random_(seed), block_bytes_(block_bytes) {}

  void step() {
    const std::uint64_t dice = random_() % 100;
    if (flights_.size() >= tier_.traits().in_flight_max) {
      collect(1 + random_() % 4);
    } else if (dice < 40) {
      begin_write();
    } else if (dice < 80) {
      begin_read();
    } else if (dice < 92) {
      free_one();
    } else {
      collect(std::min<std::size_t>(flights_.size(), random_() % 8));
    }
  }

  void finish() {
    collect(flights_.size());
    EXPECT_TRUE(driver_.collect_quiet().empty());
    for (const auto& [number, block] : blocks_) EXPECT_TRUE(driver_.reads_back(block.written));
    while (!blocks_.empty()) free_at(blocks_.begin());
  }

  std::uint64_t reads_checked() const { return reads_checked_; }

 private:
  void begin_write() {
    const auto size = static_cast<std::uint32_t>(1 + random_() % block_bytes_);
    auto slot = driver_.reserve(size);
    if (!slot) {
      ASSERT_EQ(slot.error().code(), Code::kNoSpace) << slot.error().to_string();
      free_one();
      return;
    }
    const std::uint64_t number = next_number_++;
    const BlockKey key = key_of(number);
    const std::uint64_t id = driver_.next_id();
    auto flight = std::make_unique<Flight>(Kind::kWrite, number, payload_of(key, size));
    const WriteOp op{
        id, key, *slot, size, checksum(flight->bytes.first(size)), flight->bytes.data()};
    if (tier_.submit_writes({&op, 1}) == 0) {
      tier_.free(*slot);
      collect(std::min<std::size_t>(1, flights_.size()));
      return;
    }
    blocks_[number] = {{key, *slot, size}, false, 0};
    flights_.emplace(id, std::move(flight));
  }

  /// A random published block, or none.
  std::map<std::uint64_t, Block>::iterator pick() {
    if (blocks_.empty()) return blocks_.end();
    auto at = blocks_.lower_bound(blocks_.begin()->first +
                                  random_() % (next_number_ - blocks_.begin()->first));
    if (at == blocks_.end()) at = blocks_.begin();
    return at->second.published ? at : blocks_.end();
  }

  void begin_read() {
    const auto at = pick();
    if (at == blocks_.end()) return;
    const Written& block = at->second.written;
    const std::uint64_t id = driver_.next_id();
    auto flight = std::make_unique<Flight>(Kind::kRead, at->first,
                                           AlignedBytes(padded(tier_, block.size_bytes)));
    flight->spans = cut(tier_, flight->bytes, block.size_bytes, 1 + random_() % 5);
    const ReadOp op{id, block.at, block.size_bytes, flight->spans};
    if (tier_.submit_reads({&op, 1}) == 0) return;
    ++at->second.reads;
    flights_.emplace(id, std::move(flight));
  }

  void free_one() {
    const auto at = pick();
    if (at != blocks_.end() && at->second.reads == 0) free_at(at);
  }

  void free_at(std::map<std::uint64_t, Block>::iterator at) {
    tier_.free(at->second.written.at);
    blocks_.erase(at);
  }

  void collect(std::size_t count) {
    for (const Completion& done : driver_.collect(count, 1 + random_() % 4)) check(done);
  }

  void check(const Completion& done) {
    const auto found = flights_.find(done.id);
    ASSERT_NE(found, flights_.end()) << "completion of an operation that is not out: " << done.id;
    const Flight& flight = *found->second;
    Block& block = blocks_.at(flight.number);
    EXPECT_EQ(done.code, Code::kOk);
    EXPECT_EQ(done.size_bytes, block.written.size_bytes);
    if (flight.kind == Kind::kWrite) {
      block.published = true;
    } else {
      const AlignedBytes want = payload_of(block.written.key, block.written.size_bytes);
      EXPECT_EQ(std::memcmp(flight.bytes.data(), want.data(), block.written.size_bytes), 0)
          << "wrong bytes of block " << flight.number;
      --block.reads;
      ++reads_checked_;
    }
    flights_.erase(found);
  }

  Tier& tier_;
  TierDriver& driver_;
  std::mt19937_64 random_;
  std::uint32_t block_bytes_;
  std::uint64_t next_number_ = 1, reads_checked_ = 0;
  std::map<std::uint64_t, Block> blocks_;
  std::map<std::uint64_t, std::unique_ptr<Flight>> flights_;
};

TEST_P(TierContract, RandomOperationsMatchAModel) {
  const std::uint32_t steps =
      full() ? GetParam().random_operations_full : GetParam().random_operations;
  Model model(tier(), driver(), seed(), block_bytes());
  for (std::uint32_t i = 0; i < steps && !HasFatalFailure(); ++i) {
    model.step();
    if (i % 256 == 0) {
      expect_closed_accounts();
      ASSERT_TRUE(tier().chore().is_ok());
    }
    if (HasFailure()) break;
  }
  ASSERT_FALSE(HasFailure());
  model.finish();
  EXPECT_GT(model.reads_checked(), steps / 10);
  EXPECT_EQ(tier().report().used_bytes, 0U);
  expect_closed_accounts();
}

}  // namespace
}  // namespace kvstream::test
