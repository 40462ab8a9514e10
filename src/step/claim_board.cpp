#include "step/claim_board.hpp"

#include <algorithm>
#include <bit>

namespace kvstream {
namespace {

/// Sets whose pressures differ by less count as equal; then the earliest request decides.
constexpr double kPressureTie = 0.95;

template <class Visit>
void for_each_bit(std::uint64_t bits, Visit visit) {
  for (; bits != 0; bits &= bits - 1) visit(static_cast<std::uint8_t>(std::countr_zero(bits)));
}

}  // namespace

double SourceStates::rate_of(SourceMask mask) const {
  double sum = 0;
  std::uint64_t devices = 0;
  for_each_bit(mask & live, [&](std::uint8_t source) {
    const std::uint64_t own = std::uint64_t{1} << device[source];
    if ((devices & own) == 0) sum += rate[source];
    devices |= own;
  });
  return sum;
}

void ClaimBoard::Bits::reset(std::uint32_t count) {
  words.assign((count + 63) / 64, 0);
  summary.assign((words.size() + 63) / 64, 0);
  first = kNoBlock;
}

void ClaimBoard::Bits::insert(std::uint32_t block) {
  words[block / 64] |= std::uint64_t{1} << (block % 64);
  summary[block / 4096] |= std::uint64_t{1} << (block / 64 % 64);
  first = std::min(first, block);
}

void ClaimBoard::Bits::erase(std::uint32_t block) {
  std::uint64_t& word = words[block / 64];
  word &= ~(std::uint64_t{1} << (block % 64));
  if (word == 0) summary[block / 4096] &= ~(std::uint64_t{1} << (block / 64 % 64));
  if (block != first) return;
  first = kNoBlock;
  for (std::size_t i = block / 4096; i < summary.size(); ++i) {
    if (summary[i] == 0) continue;
    const std::size_t at = i * 64 + static_cast<std::size_t>(std::countr_zero(summary[i]));
    first = static_cast<std::uint32_t>(at * 64) +
            static_cast<std::uint32_t>(std::countr_zero(words[at]));
    return;
  }
}

void ClaimBoard::reset(std::uint32_t count_blocks, SourceMask sources, std::uint32_t* unread_of) {
  count_blocks_ = count_blocks;
  sources_ = sources;
  unread_of_ = unread_of;
  sets_.clear();
  sets_.reserve(kSourceSetsMax);
  nonempty_ = singles_ = last_mask_ = 0;
  nonempty_band_.fill(0);
  sets_with_.fill(0);
  ns_per_byte_.fill(0);
  pressure_.fill(0);
  rates_version_ = 0;
  set_of_.assign(count_blocks, kNoSet);
  band_of_.assign(count_blocks, 0);
  bytes_of_.assign(count_blocks, 0);
  unread_for_.fill(0);
  unread_blocks_ = 0;
  unread_bytes_ = 0;
}

bool ClaimBoard::full_for(SourceMask mask) const {
  // Room is kept for a set of each source alone, so that every block can be filed somewhere.
  const bool single = std::has_single_bit(mask);
  const auto wanted = static_cast<std::size_t>(std::popcount(sources_ & ~singles_));
  return !single && sets_.size() + wanted + 1 > kSourceSetsMax;
}

std::uint8_t ClaimBoard::add_set(SourceMask mask) {
  const auto index = static_cast<std::uint8_t>(sets_.size());
  sets_.emplace_back();
  Set& set = sets_.back();
  set.mask = mask;
  for (Bits& bits : set.bands) bits.reset(count_blocks_);
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    Set& other = sets_[i];
    if ((mask & ~other.mask) == 0) set.supersets |= std::uint64_t{1} << i;
    if ((other.mask & ~mask) == 0) {
      other.supersets |= std::uint64_t{1} << index;
      set.within += other.bytes;
    }
  }
  if (std::has_single_bit(mask)) singles_ |= mask;
  for_each_bit(mask, [&](std::uint8_t source) { sets_with_[source] |= std::uint64_t{1} << index; });
  rates_version_ = 0;
  return index;
}

std::uint8_t ClaimBoard::set_for(SourceMask mask) {
  if (mask == last_mask_) return last_set_;
  int best = -1;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    if (sets_[i].mask == mask) {
      last_mask_ = mask;
      return last_set_ = static_cast<std::uint8_t>(i);
    }
    const bool part = (sets_[i].mask & ~mask) == 0;
    if (part && (best < 0 || std::popcount(sets_[i].mask) >
                                 std::popcount(sets_[static_cast<std::size_t>(best)].mask)))
      best = static_cast<int>(i);
  }
  if (!full_for(mask))
    best = add_set(mask);
  else if (best < 0)
    best = add_set(mask & (~mask + 1));
  last_mask_ = mask;
  return last_set_ = static_cast<std::uint8_t>(best);
}

void ClaimBoard::put(std::uint32_t block, SourceMask mask, std::uint32_t bytes, Band band) {
  const std::uint8_t index = set_for(mask);
  Set& set = sets_[index];
  set_of_[block] = index;
  band_of_[block] = static_cast<std::uint8_t>(band);
  bytes_of_[block] = bytes;
  set.bands[band_of_[block]].insert(block);
  ++set.count;
  set.bytes += bytes;
  nonempty_ |= std::uint64_t{1} << index;
  nonempty_band_[band_of_[block]] |= std::uint64_t{1} << index;
  for_each_bit(set.supersets, [&](std::uint8_t i) {
    sets_[i].within += bytes;
    pressure_[i] = static_cast<double>(sets_[i].within) * ns_per_byte_[i];
  });
  for_each_bit(set.mask, [&](std::uint8_t source) {
    ++unread_for_[source];
    ++unread_of_[source];
  });
  ++unread_blocks_;
  unread_bytes_ += bytes;
}

void ClaimBoard::take(std::uint32_t block) {
  const std::uint8_t index = set_of_[block];
  if (index == kNoSet) return;
  Set& set = sets_[index];
  const std::uint32_t bytes = bytes_of_[block];
  set_of_[block] = kNoSet;
  Bits& bits = set.bands[band_of_[block]];
  bits.erase(block);
  if (bits.first == kNoBlock) nonempty_band_[band_of_[block]] &= ~(std::uint64_t{1} << index);
  set.bytes -= bytes;
  if (--set.count == 0) nonempty_ &= ~(std::uint64_t{1} << index);
  for_each_bit(set.supersets, [&](std::uint8_t i) {
    sets_[i].within -= bytes;
    pressure_[i] = static_cast<double>(sets_[i].within) * ns_per_byte_[i];
  });
  for_each_bit(set.mask, [&](std::uint8_t source) {
    --unread_for_[source];
    --unread_of_[source];
  });
  --unread_blocks_;
  unread_bytes_ -= bytes;
}

void ClaimBoard::refresh_rates(const SourceStates& states) {
  if (rates_version_ == states.version) return;
  rates_version_ = states.version;
  for (std::size_t i = 0; i < sets_.size(); ++i) {
    const double rate = states.rate_of(sets_[i].mask);
    ns_per_byte_[i] = rate > 0 ? 1 / rate : 0;
    pressure_[i] = static_cast<double>(sets_[i].within) * ns_per_byte_[i];
  }
  rate_all_ = states.rate_of(sources_);
}

std::uint64_t ClaimBoard::unread_bytes_only(SourceId source) const {
  for (const Set& set : sets_)
    if (set.mask == bit(source)) return set.bytes;
  return 0;
}

double ClaimBoard::remaining_ns(const SourceStates& states) {
  refresh_rates(states);
  return rate_all_ > 0 ? static_cast<double>(unread_bytes_) / rate_all_ : 0;
}

double ClaimBoard::greatest_pressure() const {
  double greatest = rate_all_ > 0 ? static_cast<double>(unread_bytes_) / rate_all_ : 0;
  for_each_bit(nonempty_, [&](std::uint8_t i) { greatest = std::max(greatest, pressure_[i]); });
  return greatest;
}

// Rule 4: the source declines when it would finish later than the earliest of the others could,
// and later than the others need for all that they can serve and what they have in flight.
bool ClaimBoard::declines(SourceId source, const Set& set, double bytes,
                          const SourceStates& states) const {
  const SourceMask others = set.mask & states.live & ~bit(source);
  if (others == 0) return false;
  const double own = states.finish_ns(source, bytes);
  double earliest = own;
  bool first = true;
  for_each_bit(others, [&](std::uint8_t other) {
    const double finish = states.finish_ns(other, bytes);
    earliest = first ? finish : std::min(earliest, finish);
    first = false;
  });
  if (own <= earliest) return false;
  double left = 0;
  SourceMask reach = others;
  for_each_bit(nonempty_, [&](std::uint8_t i) {
    if ((sets_[i].mask & others) == 0) return;
    left += static_cast<double>(sets_[i].bytes);
    reach |= sets_[i].mask;
  });
  double rates = 0;
  std::uint64_t devices = std::uint64_t{1} << states.device[source];
  for_each_bit(reach & states.live & ~bit(source), [&](std::uint8_t other) {
    const std::uint64_t own_device = std::uint64_t{1} << states.device[other];
    if ((devices & own_device) != 0) return;
    devices |= own_device;
    left += states.queued_bytes[other];
    rates += states.rate[other];
  });
  // Others that share the source's own device finish no earlier than it does.
  return rates > 0 && own > left / rates;
}

ClaimBoard::Claimed ClaimBoard::claim(const Ask& ask, const SourceStates& states,
                                      std::span<std::uint32_t> out) {
  Claimed claimed;
  const auto band = static_cast<std::size_t>(ask.band);
  std::uint64_t candidates = sets_with_[ask.source] & nonempty_band_[band];
  if (ask.alone_only)
    for_each_bit(candidates, [&](std::uint8_t i) {
      if (sets_[i].mask != bit(ask.source)) candidates &= ~(std::uint64_t{1} << i);
    });
  if (candidates == 0) return claimed;
  refresh_rates(states);
  // With one candidate its pressure decides nothing.
  const bool weigh = ask.adaptive && !std::has_single_bit(candidates);
  const double threshold = weigh ? kPressureShare * greatest_pressure() : 0;
  const auto score = [&](std::uint8_t i) {
    return !weigh || pressure_[i] < threshold ? 0.0 : pressure_[i];
  };
  while (candidates != 0) {
    double greatest = 0;
    for_each_bit(candidates, [&](std::uint8_t i) { greatest = std::max(greatest, score(i)); });
    int best = -1;
    for_each_bit(candidates, [&](std::uint8_t i) {
      if (score(i) < kPressureTie * greatest) return;
      if (best < 0 ||
          sets_[i].bands[band].first < sets_[static_cast<std::size_t>(best)].bands[band].first)
        best = i;
    });
    Set& set = sets_[static_cast<std::size_t>(best)];
    const std::uint32_t count =
        std::min({ask.blocks_max, set.count, static_cast<std::uint32_t>(out.size())});
    const double bytes = static_cast<double>(count) * bytes_of_[set.bands[band].first];
    if (ask.adaptive && declines(ask.source, set, bytes, states)) {
      claimed.declined = true;
      candidates &= ~(std::uint64_t{1} << best);
      continue;
    }
    while (claimed.count < count && set.bands[band].first != kNoBlock) {
      out[claimed.count++] = set.bands[band].first;
      take(set.bands[band].first);
    }
    return claimed;
  }
  return claimed;
}

}  // namespace kvstream
