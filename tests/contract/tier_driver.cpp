#include "contract/tier_driver.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/checksum.hpp"

namespace kvstream::test {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr int kChoresMax = 1000;

std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15U;
  value = (value ^ (value >> 30U)) * 0xBF58476D1CE4E5B9U;
  value = (value ^ (value >> 27U)) * 0x94D049BB133111EBU;
  return value ^ (value >> 31U);
}

std::size_t round_up(std::size_t value, std::size_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

AlignedBytes::AlignedBytes(std::size_t size_bytes)
    : data_(static_cast<std::byte*>(
          std::aligned_alloc(kPageBytes, std::max(kPageBytes, round_up(size_bytes, kPageBytes))))),
      size_bytes_(size_bytes) {
  if (data_ == nullptr) throw std::bad_alloc();
  std::memset(data(), 0xEE, std::max(kPageBytes, round_up(size_bytes, kPageBytes)));
}

BlockKey key_of(std::uint64_t number) {
  BlockKey key;
  const std::array<std::uint64_t, 2> halves{mix(number), mix(~number)};
  std::memcpy(key.bytes.data(), halves.data(), key.bytes.size());
  return key;
}

AlignedBytes payload_of(const BlockKey& key, std::uint32_t size_bytes) {
  AlignedBytes bytes(size_bytes);
  const std::uint64_t start = key.low64();
  for (std::size_t at = 0; at < size_bytes; at += 8) {
    const std::uint64_t word = start + at * 0x9E3779B97F4A7C15U;
    std::memcpy(bytes.data() + at, &word, std::min<std::size_t>(8, size_bytes - at));
  }
  return bytes;
}

std::uint64_t payload_checksum(const BlockKey& key, std::uint32_t size_bytes) {
  return checksum(payload_of(key, size_bytes).first(size_bytes));
}

std::uint32_t padded(const Tier& tier, std::uint32_t size_bytes) {
  return static_cast<std::uint32_t>(
      round_up(size_bytes, std::max(1U, tier.traits().alignment_bytes)));
}

std::vector<Span> cut(const Tier& tier, const AlignedBytes& buffer, std::uint32_t size_bytes,
                      std::size_t count) {
  const std::size_t unit = std::max(1U, tier.traits().alignment_bytes);
  const std::size_t all = padded(tier, size_bytes);
  const std::size_t part = std::max(unit, all / count / unit * unit);
  std::vector<Span> spans;
  std::size_t at = 0;
  while (spans.size() + 1 < count && at + part < all) {
    spans.push_back({buffer.data() + at, part});
    at += part;
  }
  spans.push_back({buffer.data() + at, all - at});
  return spans;
}

Result<SlotRef> TierDriver::reserve(std::uint32_t size_bytes) {
  auto slot = tier_.reserve(size_bytes);
  for (int i = 0; i < kChoresMax && !slot && slot.error().code() == Code::kOverloaded; ++i) {
    const Status status = tier_.chore();
    if (!status.is_ok()) return failure(status);
    slot = tier_.reserve(size_bytes);
  }
  return slot;
}

bool TierDriver::submit(const std::function<std::size_t()>& offer) {
  if (offer() == 1) return true;
  ADD_FAILURE() << "an idle tier refused an operation";
  return false;
}

Completion TierDriver::write_at(const Written& block) {
  const AlignedBytes bytes = payload_of(block.key, block.size_bytes);
  WriteOp op;
  op.id = next_id();
  op.key = block.key;
  op.at = block.at;
  op.size_bytes = block.size_bytes;
  op.checksum = checksum(bytes.first(block.size_bytes));
  op.from = bytes.data();
  if (!submit([&] { return tier_.submit_writes({&op, 1}); })) return {op.id, Code::kOverloaded, 0};
  const auto done = collect(1);
  if (done.empty()) return {op.id, Code::kTimedOut, 0};
  EXPECT_EQ(done[0].id, op.id);
  return done[0];
}

Written TierDriver::write(std::uint64_t number, std::uint32_t size_bytes) {
  const auto slot = reserve(size_bytes);
  if (!slot) {
    ADD_FAILURE() << "no slot for block " << number << ": " << slot.error().to_string();
    return {};
  }
  const Written block{key_of(number), *slot, size_bytes};
  const Completion done = write_at(block);
  EXPECT_EQ(done.code, Code::kOk) << "block " << number << " of " << size_bytes << " B";
  EXPECT_EQ(done.size_bytes, size_bytes);
  return block;
}

TierDriver::Read TierDriver::read(const Written& block, std::size_t spans) {
  Read result{{}, AlignedBytes(padded(tier_, block.size_bytes))};
  const auto into = cut(tier_, result.bytes, block.size_bytes, spans);
  ReadOp op{next_id(), block.at, block.size_bytes, into};
  result.done = {op.id, Code::kTimedOut, 0};
  if (!submit([&] { return tier_.submit_reads({&op, 1}); })) return result;
  const auto done = collect(1);
  if (done.empty()) return result;
  EXPECT_EQ(done[0].id, op.id);
  result.done = done[0];
  return result;
}

bool TierDriver::reads_back(const Written& block, std::size_t spans) {
  const Read got = read(block, spans);
  EXPECT_EQ(got.done.code, Code::kOk);
  EXPECT_EQ(got.done.size_bytes, block.size_bytes);
  const AlignedBytes want = payload_of(block.key, block.size_bytes);
  return got.done.code == Code::kOk &&
         std::memcmp(got.bytes.data(), want.data(), block.size_bytes) == 0;
}

bool TierDriver::wait_announced(Nanos deadline) {
  const int fd = tier_.wait_fd();
  for (;;) {
    const Nanos next = tier_.next_event();
    if (next == kNever && fd < 0) {
      ADD_FAILURE() << "operations are in flight and neither wait_fd() nor next_event() will tell";
      return false;
    }
    const Nanos now = clock_.now();
    if (now >= deadline) return false;
    const Nanos wait = std::max<Nanos>(0, std::min(next, deadline) - now);
    timespec timeout{};
    timeout.tv_sec = wait / kSecond;
    timeout.tv_nsec = wait % kSecond;
    pollfd event{fd, POLLIN, 0};
    const int readable = ::ppoll(&event, fd < 0 ? 0 : 1, &timeout, nullptr);
    if (readable > 0 || clock_.now() >= next) return true;
  }
}

std::vector<Completion> TierDriver::collect(std::size_t count, std::size_t places) {
  const Nanos deadline = clock_.now() + patience_ns_;
  std::vector<Completion> all, out(places);
  while (all.size() < count) {
    // Only what was announced is polled for: a completion that nobody tells of is never found.
    if (!wait_announced(deadline)) {
      ADD_FAILURE() << "only " << all.size() << " of " << count
                    << " completions were announced in time";
      break;
    }
    const std::size_t got = tier_.poll(out);
    EXPECT_LE(got, places);
    all.insert(all.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(got));
  }
  return all;
}

std::vector<Completion> TierDriver::collect_quiet() {
  std::vector<Completion> out(16), all;
  for (int i = 0; i < 100; ++i) {
    const std::size_t got = tier_.poll(out);
    all.insert(all.end(), out.begin(), out.begin() + static_cast<std::ptrdiff_t>(got));
  }
  return all;
}

std::map<BlockKey, CatalogChange> TierDriver::listed_blocks(std::size_t expected) {
  std::map<BlockKey, CatalogChange> blocks;
  std::array<CatalogChange, 7> news;
  int quiet_rounds = 0;
  for (int i = 0; i < kChoresMax && (quiet_rounds < 3 || blocks.size() < expected); ++i) {
    const std::size_t count = tier_.changes(news);
    for (const CatalogChange& change : std::span(news).first(count)) {
      if (change.kind == CatalogChange::Kind::kAdded) {
        blocks[change.key] = change;
      } else {
        blocks.erase(change.key);
      }
    }
    if (count > 0) continue;
    ++quiet_rounds;
    EXPECT_TRUE(tier_.chore().is_ok());
  }
  return blocks;
}

}  // namespace kvstream::test
