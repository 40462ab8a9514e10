// Drives one tier the way the engine does, for tests: waits only on what the tier announces.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/tier.hpp"

namespace kvstream::test {

/// Bytes aligned to 4 KiB, with room up to the next multiple of it, filled with 0xEE.
class AlignedBytes {
 public:
  explicit AlignedBytes(std::size_t size_bytes);
  std::byte* data() const { return data_.get(); }
  std::size_t size_bytes() const { return size_bytes_; }
  std::span<const std::byte> first(std::size_t size_bytes) const { return {data(), size_bytes}; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::size_t size_bytes_;
};

/// The n-th key of a test.
BlockKey key_of(std::uint64_t number);
/// The bytes that a block of this key holds in every test, and their checksum.
AlignedBytes payload_of(const BlockKey& key, std::uint32_t size_bytes);
std::uint64_t payload_checksum(const BlockKey& key, std::uint32_t size_bytes);
/// Size rounded up to the tier's alignment: what spans must add up to.
std::uint32_t padded(const Tier& tier, std::uint32_t size_bytes);
/// Cuts `buffer` into at most `count` spans of whole alignment units.
std::vector<Span> cut(const Tier& tier, const AlignedBytes& buffer, std::uint32_t size_bytes,
                      std::size_t count);

/// A block that was written.
struct Written {
  BlockKey key;
  SlotRef at;
  std::uint32_t size_bytes = 0;
};

/// Owned by a test; one thread. Failures to wait are test failures, every wait has a deadline.
class TierDriver {
 public:
  explicit TierDriver(Tier& tier, Nanos patience_ns = 20 * kSecond)
      : tier_(tier), patience_ns_(patience_ns) {}

  /// As Tier::reserve, doing chores while the tier says kOverloaded.
  Result<SlotRef> reserve(std::uint32_t size_bytes);
  /// Reserves and writes; the test fails and the block is empty when it does not work.
  Written write(std::uint64_t number, std::uint32_t size_bytes);
  Completion write_at(const Written& block);
  /// Reads into a fresh buffer over `spans` spans.
  struct Read {
    Completion done;
    AlignedBytes bytes;
  };
  Read read(const Written& block, std::size_t spans = 1);
  /// A good completion, and byte for byte what was written.
  bool reads_back(const Written& block, std::size_t spans = 1);

  /// Polls with `places` places until `count` completions are there, asleep as the tier says.
  std::vector<Completion> collect(std::size_t count, std::size_t places = 16);
  /// What a tier that is quiet still brings: nothing.
  std::vector<Completion> collect_quiet();
  /// News of blocks, by key, with chores between.
  std::map<BlockKey, CatalogChange> listed_blocks(std::size_t expected);

  std::uint64_t next_id() { return next_id_++; }

 private:
  /// Asleep until wait_fd() is readable or next_event() has come; false at the deadline.
  bool wait_announced(Nanos deadline);
  bool submit(const std::function<std::size_t()>& offer);

  Tier& tier_;
  const Clock& clock_ = SteadyClock::instance();
  Nanos patience_ns_;
  std::uint64_t next_id_ = 1;
};

}  // namespace kvstream::test
