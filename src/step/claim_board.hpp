// A step's unread blocks, and which of them a source should read next. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "step/plan.hpp"

namespace kvstream {

inline constexpr std::size_t kSourcesMax = 64;
/// A source takes the set with the greatest pressure when that is this part of the greatest of all.
inline constexpr double kPressureShare = 0.8;

/// What the board may know of the sources now; one for all boards. `version` grows when a rate or
/// the liveness of a source has changed.
struct SourceStates {
  SourceMask live = 0;  ///< may claim, or will be able to
  std::uint64_t version = 1;
  std::array<double, kSourcesMax> rate{};          ///< bytes per ns, of its device
  std::array<double, kSourcesMax> latency_ns{};    ///< of a lone read, without its transfer
  std::array<double, kSourcesMax> queued_bytes{};  ///< in flight on its device, all steps
  std::array<std::uint8_t, kSourcesMax> device{};  ///< sources that share one have the same number

  /// Sum over the distinct devices of the live sources in `mask`.
  double rate_of(SourceMask mask) const;
  /// When a further `bytes` would be done, from now.
  double finish_ns(SourceId source, double bytes) const {
    return latency_ns[source] + (queued_bytes[source] + bytes) / rate[source];
  }
};

/// Unread blocks grouped by the set of sources that may claim them, each group in request order.
///
/// Owned by the dispatcher, one a step. At most 64 sets: sums over sets are kept as blocks come and
/// go, so that a claim costs O(sets) whatever the number of blocks. A block whose set would be the
/// 65th is filed under a part of its set. reset() and new sets allocate, nothing else does.
class ClaimBoard {
 public:
  /// A block behind an open question is claimed only when nothing else is.
  enum class Band : std::uint8_t { kFront, kBehind };
  struct Ask {
    SourceId source = 0;
    std::uint32_t blocks_max = 1;
    Band band = Band::kFront;
    bool adaptive = true;     ///< pressure and tail rule; else request order alone
    bool alone_only = false;  ///< only blocks that no other source may claim
  };
  struct Claimed {
    std::uint32_t count = 0;
    bool declined = false;  ///< the tail rule kept the source from something
  };

  /// `sources`: all that the board may ever see. `unread_of`, kSourcesMax long, is counted up and
  /// down for each source of each unread block.
  void reset(std::uint32_t count_blocks, SourceMask sources, std::uint32_t* unread_of);
  bool covers(SourceId source) const { return (sources_ & bit(source)) != 0; }
  /// `mask` is not empty and within `sources`.
  void put(std::uint32_t block, SourceMask mask, std::uint32_t bytes, Band band);
  void take(std::uint32_t block);
  bool unread(std::uint32_t block) const { return set_of_[block] != kNoSet; }

  /// Takes up to blocks_max blocks of one set off the board, by rules 2, 3 and 4.
  Claimed claim(const Ask& ask, const SourceStates& states, std::span<std::uint32_t> out);

  std::uint32_t unread_blocks() const { return unread_blocks_; }
  std::uint64_t unread_bytes() const { return unread_bytes_; }
  std::uint32_t unread_for(SourceId source) const { return unread_for_[source]; }
  /// Of blocks that nobody else may claim.
  std::uint64_t unread_bytes_only(SourceId source) const;
  /// How long all of it would take all its sources.
  double remaining_ns(const SourceStates& states);
  std::uint32_t count_sets() const { return static_cast<std::uint32_t>(sets_.size()); }

 private:
  static constexpr std::uint8_t kNoSet = 0xff;
  static constexpr std::uint32_t kNoBlock = ~std::uint32_t{0};

  /// An ordered set of block numbers: two levels of bits.
  struct Bits {
    std::vector<std::uint64_t> words, summary;
    std::uint32_t first = kNoBlock;
    void reset(std::uint32_t count);
    void insert(std::uint32_t block);
    void erase(std::uint32_t block);
  };
  struct Set {
    SourceMask mask = 0;
    std::uint64_t supersets = 0;  ///< sets whose mask holds this one's, itself too
    std::uint64_t bytes = 0;      ///< unread
    std::uint64_t within = 0;     ///< unread bytes of all sets inside this one
    std::uint32_t count = 0;
    std::array<Bits, 2> bands;
  };

  std::uint8_t set_for(SourceMask mask);
  std::uint8_t add_set(SourceMask mask);
  bool full_for(SourceMask mask) const;
  void refresh_rates(const SourceStates& states);
  double greatest_pressure() const;
  bool declines(SourceId source, const Set& set, double bytes, const SourceStates& states) const;

  std::uint32_t count_blocks_ = 0;
  std::uint32_t* unread_of_ = nullptr;
  std::vector<Set> sets_;
  std::uint64_t nonempty_ = 0;  ///< sets with unread blocks
  std::array<std::uint64_t, 2> nonempty_band_{};
  std::array<std::uint64_t, kSourcesMax> sets_with_{};  ///< by source
  std::array<double, kSourceSetsMax> ns_per_byte_{};    ///< of a set's sources; 0 without a rate
  std::array<double, kSourceSetsMax> pressure_{};       ///< ns; kept with `within`
  SourceMask sources_ = 0, singles_ = 0;
  SourceMask last_mask_ = 0;
  std::uint8_t last_set_ = 0;
  std::uint64_t rates_version_ = 0;
  double rate_all_ = 0;
  std::vector<std::uint8_t> set_of_;
  std::vector<std::uint8_t> band_of_;
  std::vector<std::uint32_t> bytes_of_;
  std::array<std::uint32_t, kSourcesMax> unread_for_{};
  std::uint32_t unread_blocks_ = 0;
  std::uint64_t unread_bytes_ = 0;
};

}  // namespace kvstream
