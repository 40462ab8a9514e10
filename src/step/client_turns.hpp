// Whose turn a source's free place is, between clients. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "step/plan.hpp"

namespace kvstream {

/// Deals each source's bytes out evenly between the clients that have unread work for it, by
/// start-time fair queueing (Goyal, Vin, Cheng 1996): a claim is tagged with the bytes that its
/// client had before, or with the tag last served if that is more, so that who was idle saves
/// nothing up; the least tag goes first.
///
/// Owned by the dispatcher. At most kClientsMax clients are told apart; further ones that have
/// steps at the same time share a seat, and with it a turn.
class ClientTurns {
 public:
  static constexpr std::size_t kClientsMax = 64;

  explicit ClientTurns(std::size_t sources) : sources_(sources), served_(sources, 0) {}

  /// A step of the client begins; the seat is named again when it ends.
  std::uint32_t enter(std::uint32_t client);
  void leave(std::uint32_t seat);
  /// False: there is nothing to decide, and tags need not be looked at.
  bool contested() const { return present_ > 1; }

  std::uint64_t tag(std::uint32_t seat, SourceId source) const {
    return std::max(seats_[seat].claimed[source], served_[source]);
  }
  void charge(std::uint32_t seat, SourceId source, std::uint64_t bytes) {
    served_[source] = tag(seat, source);
    seats_[seat].claimed[source] = served_[source] + bytes;
  }

 private:
  struct Seat {
    std::uint32_t client = 0;
    std::uint32_t steps = 0;
    std::vector<std::uint64_t> claimed;  ///< by source
  };
  std::size_t sources_;
  std::vector<std::uint64_t> served_;  ///< the tag served last, by source
  std::vector<Seat> seats_;            ///< kept when its client has gone: its debt is not forgotten
  std::uint32_t present_ = 0;          ///< seats with steps
};

}  // namespace kvstream
