#include "replay/device_kv.hpp"

#include <fmt/format.h>

namespace kvstream {

Result<DeviceKv> DeviceKv::open(const Options& options) {
  if (options.block_tokens == 0 || options.block_tokens % kPageTokens != 0) {
    return failure(Code::kInvalidArgument,
                   fmt::format("device KV cannot hold blocks of {} tokens; use a multiple of {}",
                               options.block_tokens, kPageTokens));
  }
  if (options.capacity_tokens < kPageTokens) {
    return failure(Code::kInvalidArgument,
                   fmt::format("device KV of {} tokens holds no page; give at least {} tokens",
                               options.capacity_tokens, kPageTokens));
  }
  return DeviceKv(options);
}

DeviceKv::DeviceKv(const Options& options)
    : options_(options),
      block_pages_(options.block_tokens / kPageTokens),
      capacity_pages_(options.capacity_tokens / kPageTokens),
      empty_pages_(capacity_pages_) {}

std::uint32_t DeviceKv::find(std::span<const BlockKey> keys) const {
  std::uint32_t found = 0;
  while (found < keys.size() && findable_.contains(keys[found])) ++found;
  return found;
}

std::uint64_t DeviceKv::idle_pages_of(std::span<const BlockKey> keys) const {
  std::uint64_t idle = 0;
  for (const BlockKey& key : keys) {
    if (slots_[findable_.at(key)].holders == 0) idle += block_pages_;
  }
  return idle;
}

void DeviceKv::share(Hold& hold, std::span<const BlockKey> keys) {
  for (const BlockKey& key : keys) {
    const std::uint32_t slot = findable_.at(key);
    if (slots_[slot].holders++ == 0) unlink_idle(slot);
    hold.blocks.push_back(slot);
    hold.shared_pages += block_pages_;
  }
}

bool DeviceKv::grow(Hold& hold, std::uint64_t tokens) {
  const std::uint64_t wanted = pages(tokens);
  if (wanted <= hold.pages()) return true;
  const std::uint64_t missing = wanted - hold.pages();
  if (missing > free_pages()) return false;
  while (empty_pages_ < missing) evict_oldest();
  empty_pages_ -= missing;
  hold.loose_pages += missing;
  return true;
}

void DeviceKv::publish(Hold& hold, const BlockKey& key) {
  if (options_.prefix_cache == PrefixCache::kOff || findable_.contains(key)) {
    hold.blocks.push_back(kLoose);
    return;
  }
  const std::uint32_t slot = take_slot();
  slots_[slot] = Slot{.key = key, .holders = 1, .findable = true};
  findable_.emplace(key, slot);
  hold.blocks.push_back(slot);
  hold.loose_pages -= block_pages_;
  hold.shared_pages += block_pages_;
}

void DeviceKv::retract(Hold& hold, std::uint32_t first) {
  while (hold.blocks.size() > first) {
    const std::uint32_t slot = hold.blocks.back();
    hold.blocks.pop_back();
    if (slot == kLoose) continue;
    if (slots_[slot].findable) findable_.erase(slots_[slot].key);
    slots_[slot].findable = false;
    hold.shared_pages -= block_pages_;
    if (--slots_[slot].holders > 0) continue;
    unused_slots_.push_back(slot);
    hold.loose_pages += block_pages_;
  }
}

void DeviceKv::release(Hold& hold) {
  for (auto slot = hold.blocks.rbegin(); slot != hold.blocks.rend(); ++slot) {
    if (*slot == kLoose || --slots_[*slot].holders > 0) continue;
    if (slots_[*slot].findable) {
      link_idle(*slot);
    } else {
      unused_slots_.push_back(*slot);
      empty_pages_ += block_pages_;
    }
  }
  empty_pages_ += hold.loose_pages;
  hold.blocks.clear();
  hold.loose_pages = 0;
  hold.shared_pages = 0;
}

std::uint32_t DeviceKv::take_slot() {
  if (unused_slots_.empty()) {
    slots_.emplace_back();
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t slot = unused_slots_.back();
  unused_slots_.pop_back();
  return slot;
}

void DeviceKv::link_idle(std::uint32_t slot) {
  slots_[slot].older = newest_;
  slots_[slot].newer = kLoose;
  (newest_ == kLoose ? oldest_ : slots_[newest_].newer) = slot;
  newest_ = slot;
  idle_pages_ += block_pages_;
}

void DeviceKv::unlink_idle(std::uint32_t slot) {
  const auto [older, newer] = std::pair{slots_[slot].older, slots_[slot].newer};
  (older == kLoose ? oldest_ : slots_[older].newer) = newer;
  (newer == kLoose ? newest_ : slots_[newer].older) = older;
  idle_pages_ -= block_pages_;
}

void DeviceKv::evict_oldest() {
  const std::uint32_t slot = oldest_;
  unlink_idle(slot);
  findable_.erase(slots_[slot].key);
  unused_slots_.push_back(slot);
  empty_pages_ += block_pages_;
  ++evicted_blocks_;
}

}  // namespace kvstream
