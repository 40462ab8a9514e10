// Bytes that arrived are verified and put where they are wanted.
#pragma once

#include <cstdint>
#include <span>

#include "kvstream/block.hpp"
#include "kvstream/clock.hpp"

namespace kvstream {

/// `from` is a slab, or a tier's own memory; null when the block landed direct in `into[0..]` and
/// is only to be verified. The spans of one copy add up to size_bytes; there are `copies` of them,
/// one behind the other in `into` (a block that several requests want).
struct PlaceJob {
  std::uint64_t id = 0;
  const std::byte* from = nullptr;
  std::uint32_t size_bytes = 0;
  std::uint64_t checksum = 0;
  bool verify = true;
  std::uint32_t copies = 1;
  std::span<const Span> into;  ///< valid until the job is done
};

struct PlaceDone {
  std::uint64_t id = 0;
  bool good = false;  ///< false: nothing was written (or, direct, what is there is bad)
};

/// Copy threads behind two bounded rings, or a test's twin. A staged block is verified before its
/// first byte is placed. submit and poll are called by the progress thread.
class Placer {
 public:
  virtual ~Placer() = default;
  /// False when the ring is full: try again next turn.
  virtual bool submit(const PlaceJob& job) = 0;
  virtual std::size_t poll(std::span<PlaceDone> out) = 0;
};

}  // namespace kvstream
