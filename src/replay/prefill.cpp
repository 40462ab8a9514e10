#include "replay/prefill.hpp"

#include <absl/container/flat_hash_map.h>

#include <algorithm>

namespace kvstream {
namespace {

constexpr std::uint32_t kNone = UINT32_MAX;

/// The blocks of one rank in one tier, by dense block number: a list threaded through two arrays.
class LruList {
 public:
  void resize(std::size_t blocks) {
    next_.resize(blocks, kNone);
    previous_.resize(blocks, kNone);
    used_at_.resize(blocks, 0);
  }
  bool contains(std::uint32_t block) const { return used_at_[block] != 0; }
  std::uint64_t used_at(std::uint32_t block) const { return used_at_[block]; }
  std::uint64_t size() const { return size_; }
  std::uint32_t oldest() const { return head_; }

  void use(std::uint32_t block, std::uint64_t tick) {
    if (contains(block)) remove(block);
    previous_[block] = tail_;
    next_[block] = kNone;
    (tail_ == kNone ? head_ : next_[tail_]) = block;
    tail_ = block;
    used_at_[block] = tick;
    ++size_;
  }
  void remove(std::uint32_t block) {
    const std::uint32_t before = previous_[block], after = next_[block];
    (before == kNone ? head_ : next_[before]) = after;
    (after == kNone ? tail_ : previous_[after]) = before;
    used_at_[block] = 0;
    --size_;
  }

 private:
  std::vector<std::uint32_t> next_, previous_;
  std::vector<std::uint64_t> used_at_;
  std::uint32_t head_ = kNone, tail_ = kNone;
  std::uint64_t size_ = 0;
};

class Simulation {
 public:
  explicit Simulation(const PrefillProblem& problem)
      : problem_(problem), ranks_(problem.node_of_rank.size()), tiers_(problem.tiers.size()) {
    number_blocks();
    lists_.resize(ranks_ * tiers_);
    for (auto& list : lists_) list.resize(keys_.size());
    credit_.resize(ranks_ * tiers_, 0.0);
  }

  void play() {
    for (std::size_t i = 0; i < problem_.requests.size(); ++i) play(i, problem_.requests[i].rank);
  }

  PrefillAnswer answer() const {
    PrefillAnswer result;
    result.distinct_blocks = keys_.size();
    result.of_rank.resize(ranks_);
    for (std::size_t rank = 0; rank < ranks_; ++rank) collect(rank, result.of_rank[rank]);
    return result;
  }

 private:
  void number_blocks() {
    absl::flat_hash_map<BlockKey, std::uint32_t> numbers;
    for (const auto& request : problem_.requests) {
      auto& row = rows_.emplace_back();
      row.reserve(request.keys.size());
      for (std::size_t i = 0; i < request.keys.size(); ++i) {
        const auto [at, fresh] =
            numbers.try_emplace(request.keys[i], static_cast<std::uint32_t>(keys_.size()));
        if (fresh) {
          keys_.push_back(request.keys[i]);
          sizes_.push_back(request.sizes_bytes[i]);
        }
        row.push_back(at->second);
      }
    }
  }

  LruList& list(std::size_t rank, std::size_t tier) { return lists_[rank * tiers_ + tier]; }
  const LruList& list(std::size_t rank, std::size_t tier) const {
    return lists_[rank * tiers_ + tier];
  }

  bool readable(std::size_t reader, std::size_t owner, std::size_t tier) const {
    switch (problem_.tiers[tier].visibility) {
      case Visibility::kRank:
        return reader == owner;
      case Visibility::kNode:
        return problem_.node_of_rank[reader] == problem_.node_of_rank[owner];
      case Visibility::kJob:
        return true;
    }
    return false;
  }

  bool has_copy(std::size_t rank, std::size_t tier, std::uint32_t block) const {
    for (std::size_t owner = 0; owner < ranks_; ++owner) {
      if (readable(rank, owner, tier) && list(owner, tier).contains(block)) return true;
    }
    return false;
  }

  bool found(std::size_t rank, std::uint32_t block) const {
    for (std::size_t tier = 0; tier < tiers_; ++tier) {
      if (has_copy(rank, tier, block)) return true;
    }
    return false;
  }

  void play(std::size_t index, std::size_t rank) {
    const auto& row = rows_[index];
    std::size_t at = 0;
    for (; at < row.size() && found(rank, row[at]); ++at) {
      for (std::size_t tier = 0; tier < tiers_; ++tier) {
        if (list(rank, tier).contains(row[at])) list(rank, tier).use(row[at], ++tick_);
      }
    }
    for (; at < row.size(); ++at) write(rank, row[at]);
  }

  void write(std::size_t rank, std::uint32_t block) {
    if (problem_.replication == Replication::kNone) return;
    bool on_persistent = false;
    for (std::size_t tier = 0; tier < tiers_; ++tier) {
      const bool persistent = problem_.tiers[tier].persistent;
      const bool there = has_copy(rank, tier, block);
      on_persistent = on_persistent || (persistent && there);
      if (there) {
        if (list(rank, tier).contains(block)) list(rank, tier).use(block, ++tick_);
      } else if (!persistent || problem_.replication == Replication::kAll) {
        put(rank, tier, block);
      }
    }
    if (problem_.replication == Replication::kOne && !on_persistent) {
      const std::size_t tier = next_target(rank);
      if (tier < tiers_) put(rank, tier, block);
    }
  }

  void put(std::size_t rank, std::size_t tier, std::uint32_t block) {
    const std::uint64_t slots = problem_.tiers[tier].slots_of_rank[rank];
    if (slots == 0) return;
    LruList& order = list(rank, tier);
    if (order.size() >= slots) order.remove(order.oldest());
    order.use(block, ++tick_);
  }

  /// Smooth weighted round robin: the tier with the most credit, which then pays for all.
  std::size_t next_target(std::size_t rank) {
    std::size_t best = tiers_;
    double sum = 0;
    for (std::size_t tier = 0; tier < tiers_; ++tier) {
      const PrefillTier& what = problem_.tiers[tier];
      if (!what.persistent || what.slots_of_rank[rank] == 0) continue;
      double& credit = credit_[rank * tiers_ + tier];
      credit += what.write_weight;
      sum += what.write_weight;
      if (best == tiers_ || credit > credit_[rank * tiers_ + best]) best = tier;
    }
    if (best < tiers_) credit_[rank * tiers_ + best] -= sum;
    return best;
  }

  void collect(std::size_t rank, std::vector<BlockPlace>& places) const {
    std::vector<std::pair<std::uint64_t, BlockPlace>> dated;
    for (std::uint32_t block = 0; block < keys_.size(); ++block) {
      std::uint64_t mask = 0, used_at = 0;
      for (std::size_t tier = 0; tier < tiers_; ++tier) {
        if (!list(rank, tier).contains(block)) continue;
        mask |= std::uint64_t{1} << tier;
        used_at = std::max(used_at, list(rank, tier).used_at(block));
      }
      if (mask != 0) dated.push_back({used_at, {keys_[block], sizes_[block], mask}});
    }
    std::sort(dated.begin(), dated.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    places.reserve(dated.size());
    for (auto& [when, place] : dated) places.push_back(place);
  }

  const PrefillProblem& problem_;
  std::size_t ranks_, tiers_;
  std::vector<BlockKey> keys_;
  std::vector<std::uint32_t> sizes_;
  std::vector<std::vector<std::uint32_t>> rows_;
  std::vector<LruList> lists_;
  std::vector<double> credit_;
  std::uint64_t tick_ = 0;
};

}  // namespace

PrefillAnswer simulate_prefill(const PrefillProblem& problem) {
  Simulation simulation(problem);
  simulation.play();
  return simulation.answer();
}

}  // namespace kvstream
