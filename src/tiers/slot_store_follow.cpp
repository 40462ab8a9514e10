// What others wrote: their logs are followed in rounds, a bounded piece at a time.
#include <fmt/format.h>

#include <algorithm>

#include "tiers/slot_store_disk.hpp"

namespace kvstream {
namespace {

constexpr Nanos kHurriedWithin = 50 * kMillisecond;
constexpr Nanos kHurriedInterval = 50 * kMillisecond;
constexpr std::size_t kRecordsPerLock = 1024;
constexpr std::size_t kRechecksPerChore = 32;
constexpr std::size_t kLogsPerChore = 1024;
/// In place of a segment's id: a log of another namespace.
constexpr std::uint32_t kNotOurs = UINT32_MAX;

}  // namespace

Status DiskSlotStore::follow() {
  const Nanos now = options_.clock->now();
  if (round_.empty()) {
    // Chores close upon each other mean that somebody waits for news.
    const bool hurried = chore_ended_ != 0 && now - chore_ended_ < kHurriedWithin;
    const Nanos interval = hurried ? std::min(options_.follow_interval_ns, kHurriedInterval)
                                   : options_.follow_interval_ns;
    if (last_round_ && now - *last_round_ < interval) return Status::ok();
    last_round_ = now;
    auto logs = writers_->logs_of_others();
    if (!logs) return logs.error();
    std::vector<std::string> vanished;
    for (const auto& [path, id] : followed_) {
      if (!std::binary_search(logs->begin(), logs->end(), path)) vanished.push_back(path);
    }
    for (const auto& path : vanished) forget(path);
    round_.assign(logs->begin(), logs->end());
  }
  std::uint64_t budget_bytes = options_.follow_bytes_max;
  Status first;
  for (std::size_t i = 0; i < kLogsPerChore && !round_.empty() && budget_bytes > 0; ++i) {
    {
      const std::scoped_lock lock(mutex_);
      if (news_.size() >= options_.changes_max) break;
    }
    bool more = false;
    const Status status = follow_log(round_.front(), budget_bytes, more);
    if (!status.is_ok() && first.is_ok()) first = status;
    if (!more) round_.pop_front();
  }
  if (round_.empty()) follow_rounds_.fetch_add(1, std::memory_order_relaxed);
  return first;
}

Status DiskSlotStore::follow_log(const std::string& path, std::uint64_t& budget_bytes, bool& more) {
  more = false;
  const auto known = followed_.find(path);
  if (known != followed_.end() && known->second == kNotOurs) return Status::ok();
  SegmentPtr segment;
  if (known != followed_.end()) {
    const std::scoped_lock lock(mutex_);
    segment = find(known->second);
  }
  LogCursor cursor = segment ? segment->cursor : LogCursor{};
  auto news = read_log(path, cursor, budget_bytes);
  if (!news) {
    if (news.error().code() == Code::kNotFound) forget(path);
    if (news.error().code() == Code::kIoError) return news.error();
    return Status::ok();
  }
  budget_bytes -= std::min(budget_bytes, news->bytes_read + kLogRecordBytes);
  if (news->header.namespace_fingerprint != options_.namespace_fingerprint) {
    forget(path);
    followed_[path] = kNotOurs;
    return Status::ok();
  }
  if (segment && segment->header.identity != news->header.identity) {
    // Another segment under the same name: somebody emptied the directory meanwhile.
    forget(path);
    segment = nullptr;
  }
  if (!segment) {
    segment = std::make_shared<Segment>();
    segment->base = path.substr(0, path.size() - 4);
    segment->header = news->header;
    segment->data_path =
        std::make_shared<const std::string>(segment->base + segment_extension(news->header.format));
    segment->slots.resize(news->header.slots);
    add_segment(segment);
    followed_[path] = segment->id;
  }
  segment->cursor = cursor;
  apply(*segment, *news);
  more = news->more;
  return Status::ok();
}

void DiskSlotStore::apply(Segment& segment, const LogNews& news) {
  if (news.restarted) {
    segment.restarting = true;
    segment.seen_since_restart.assign(segment.slots.size(), false);
  }
  {
    const std::scoped_lock lock(mutex_);
    segment.header = news.header;
  }
  for (std::size_t begin = 0; begin < news.records.size(); begin += kRecordsPerLock) {
    const std::size_t end = std::min(begin + kRecordsPerLock, news.records.size());
    const std::scoped_lock lock(mutex_);
    for (std::size_t i = begin; i < end; ++i) apply_record(segment, news.records[i]);
  }
  if (!segment.restarting || news.more) return;
  // The new epoch has been read to its end: what it does not name is gone.
  segment.restarting = false;
  const std::scoped_lock lock(mutex_);
  for (std::uint32_t slot = 0; slot < segment.slots.size(); ++slot) {
    SlotInfo& info = segment.slots[slot];
    if (info.state != SlotState::kLive || segment.seen_since_restart[slot]) continue;
    push_change(CatalogChange::Kind::kRemoved, segment, slot);
    info.state = SlotState::kFree;
    --segment.live;
  }
}

void DiskSlotStore::apply_record(Segment& segment, const IndexRecord& record) {
  if (record.kind == RecordKind::kCounter) return;
  SlotInfo& info = segment.slots[record.slot];
  const bool live = info.state == SlotState::kLive;
  if (record.kind == RecordKind::kFreed) {
    if (record.generation < info.generation) return;
    if (live) {
      push_change(CatalogChange::Kind::kRemoved, segment, record.slot);
      info.state = SlotState::kFree;
      --segment.live;
    }
    info.generation = record.generation;
    return;
  }
  if (segment.restarting) segment.seen_since_restart[record.slot] = true;
  if (record.generation <= info.generation) return;
  if (live) {
    push_change(CatalogChange::Kind::kRemoved, segment, record.slot);
    --segment.live;
  }
  const bool usable = record.size_bytes > 0 && record.size_bytes <= options_.block_bytes_max;
  info = {record.key,
          record.generation,
          record.checksum,
          record.size_bytes,
          usable ? SlotState::kLive : SlotState::kFree,
          false};
  if (!usable) return;
  ++segment.live;
  push_change(CatalogChange::Kind::kAdded, segment, record.slot);
}

void DiskSlotStore::forget(const std::string& log_path) {
  const auto known = followed_.find(log_path);
  if (known == followed_.end()) return;
  const std::uint32_t id = known->second;
  followed_.erase(known);
  CachedHandle closed_outside_the_lock;
  const std::scoped_lock lock(mutex_);
  const SegmentPtr segment = find(id);
  if (!segment) return;
  for (std::uint32_t slot = 0; slot < segment->slots.size(); ++slot) {
    if (segment->slots[slot].state == SlotState::kLive) {
      push_change(CatalogChange::Kind::kRemoved, *segment, slot);
    }
  }
  segments_.erase(id);
  if (const auto it = handle_at_.find(id); it != handle_at_.end()) {
    closed_outside_the_lock = std::move(*it->second);
    handles_.erase(it->second);
    handle_at_.erase(it);
  }
}

void DiskSlotStore::answer_rechecks() {
  for (std::size_t i = 0; i < kRechecksPerChore; ++i) {
    CatalogChange asked;
    SegmentPtr segment;
    {
      const std::scoped_lock lock(mutex_);
      if (rechecks_.empty()) return;
      asked = rechecks_.front();
      rechecks_.pop_front();
      segment = find(asked.at.segment);
    }
    if (segment && !segment->own) {
      std::uint64_t budget_bytes = options_.follow_bytes_max;
      bool more = false;
      const Status status = follow_log(segment->base + ".log", budget_bytes, more);
      if (!status.is_ok()) {
        logger("tiers").debug("tier {}: {}", options_.tier_name, status.message());
      }
    }
    const std::scoped_lock lock(mutex_);
    segment = find(asked.at.segment);
    const bool same = segment && asked.at.slot < segment->slots.size() &&
                      segment->slots[asked.at.slot].generation == asked.at.generation &&
                      segment->slots[asked.at.slot].state == SlotState::kLive;
    asked.kind = same ? CatalogChange::Kind::kBad : CatalogChange::Kind::kRecycled;
    news_.push_back(asked);
  }
}

}  // namespace kvstream
