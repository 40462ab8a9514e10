#include "catalog/lease_table.hpp"

#include <algorithm>

namespace kvstream {

LeaseTable::LeaseTable(std::uint32_t leases_max) : leases_max_(leases_max) {
  std::random_device device;
  std::seed_seq seed{device(), device(), device(), device()};
  random_.seed(seed);
}

LeaseToken LeaseTable::add(std::vector<LeasedBlock> blocks, Nanos expires) {
  const std::lock_guard lock(mutex_);
  if (leases_.size() >= leases_max_) return {};
  LeaseToken token{{random_() | 1, random_()}};
  while (leases_.contains(token.words[0])) token.words[0] = random_() | 1;
  blocks_ += blocks.size();
  leases_.emplace(token.words[0], std::pair(token.words[1], Lease{expires, std::move(blocks)}));
  const auto behind = std::upper_bound(expiries_.begin(), expiries_.end(), expires,
                                       [](Nanos at, const Expiry& e) { return at < e.at; });
  expiries_.insert(behind, {expires, token});
  return token;
}

std::optional<std::vector<LeasedBlock>> LeaseTable::take_locked(LeaseToken token) {
  const auto found = leases_.find(token.words[0]);
  if (found == leases_.end() || found->second.first != token.words[1]) return std::nullopt;
  auto blocks = std::move(found->second.second.blocks);
  leases_.erase(found);
  blocks_ -= blocks.size();
  return blocks;
}

std::optional<std::vector<LeasedBlock>> LeaseTable::take(LeaseToken token) {
  const std::lock_guard lock(mutex_);
  // Of leases that were taken the expiry stays behind; it is dropped when it comes to the front.
  while (!expiries_.empty() && !leases_.contains(expiries_.front().token.words[0])) {
    expiries_.pop_front();
  }
  return take_locked(token);
}

std::optional<std::vector<LeasedBlock>> LeaseTable::take_expired(Nanos now) {
  const std::lock_guard lock(mutex_);
  while (!expiries_.empty() && expiries_.front().at <= now) {
    const auto token = expiries_.front().token;
    expiries_.pop_front();
    if (auto blocks = take_locked(token)) return blocks;
  }
  return std::nullopt;
}

bool LeaseTable::full() const {
  const std::lock_guard lock(mutex_);
  return leases_.size() >= leases_max_;
}

std::uint64_t LeaseTable::count() const {
  const std::lock_guard lock(mutex_);
  return leases_.size();
}

std::uint64_t LeaseTable::count_blocks() const {
  const std::lock_guard lock(mutex_);
  return blocks_;
}

}  // namespace kvstream
