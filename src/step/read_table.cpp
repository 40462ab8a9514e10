#include "step/read_table.hpp"

namespace kvstream {

std::uint32_t ReadTable::find(const BlockKey& key) const {
  const auto at = index_.find(key);
  return at == index_.end() ? kNone : at->second;
}

std::uint32_t ReadTable::entry_for(const BlockKey& key) {
  const auto [at, fresh] = index_.try_emplace(key, kNone);
  if (!fresh) return at->second;
  if (free_entries_.empty()) {
    free_entries_.push_back(static_cast<std::uint32_t>(entries_.size()));
    entries_.emplace_back();
  }
  at->second = free_entries_.back();
  free_entries_.pop_back();
  entries_[at->second] = KeyEntry{};
  entries_[at->second].key = key;
  return at->second;
}

void ReadTable::erase_if_unused(std::uint32_t index) {
  const KeyEntry& entry = entries_[index];
  if (entry.first != kNobody || entry.reads != 0 || entry.pinned != 0 || entry.queued) return;
  if (index_.erase(entry.key) != 0) free_entries_.push_back(index);
}

std::uint32_t ReadTable::add_read(std::uint32_t entry) {
  if (free_reads_.empty()) {
    free_reads_.push_back(static_cast<std::uint32_t>(reads_.size()));
    reads_.emplace_back();
  }
  const std::uint32_t index = free_reads_.back();
  free_reads_.pop_back();
  Read& read = reads_[index];
  read = Read{};
  generation_ = (generation_ + 1) & 0x3fffffffU;  // bits 62 and 63 belong to probes and writes
  if (generation_ == 0) generation_ = 1;
  read.id = (std::uint64_t{generation_} << 32U) | index;
  read.entry = entry;
  KeyEntry& owner = entries_[entry];
  read.next_of_entry = owner.first_read;
  owner.first_read = index;
  ++owner.reads;
  ++owner.active;
  ++count_reads_;
  return index;
}

void ReadTable::remove_read(std::uint32_t index) {
  Read& read = reads_[index];
  KeyEntry& owner = entries_[read.entry];
  std::uint32_t* at = &owner.first_read;
  while (*at != index) at = &reads_[*at].next_of_entry;
  *at = read.next_of_entry;
  --owner.reads;
  if (read.active) --owner.active;
  read.id = 0;
  free_reads_.push_back(index);
  --count_reads_;
}

std::uint32_t ReadTable::by_id(std::uint64_t id) const {
  const auto index = static_cast<std::uint32_t>(id);
  return id != 0 && index < reads_.size() && reads_[index].id == id ? index : kNone;
}

}  // namespace kvstream
