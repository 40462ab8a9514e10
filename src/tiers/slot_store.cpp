#include "tiers/slot_store.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tiers/slot_store_disk.hpp"

namespace kvstream {
namespace {

constexpr Nanos kMarkEvery = 50 * kMillisecond;

}  // namespace

SlotStoreOptions slot_store_options(const TierSpec& spec, const TierContext& context) {
  SlotStoreOptions options;
  options.tier_name = spec.name;
  options.root = spec.path;
  options.cap_bytes = spec.cap_bytes;
  options.block_bytes_max = context.block_bytes_max;
  options.namespace_fingerprint = context.namespace_fingerprint;
  options.job = context.job;
  options.node = context.node;
  options.clock = context.clock;
  return options;
}

Result<std::unique_ptr<SlotStore>> SlotStore::open(SlotStoreOptions options) {
  return DiskSlotStore::open(std::move(options));
}

DiskSlotStore::SegmentPtr DiskSlotStore::find(std::uint32_t segment) const {
  const auto it = segments_.find(segment);
  return it == segments_.end() ? nullptr : it->second;
}

bool DiskSlotStore::reservable(const Segment& segment) const {
  return segment.own && segment.header.slot_bytes == slot_bytes_;
}

void DiskSlotStore::push_change(CatalogChange::Kind kind, const Segment& segment,
                                std::uint32_t slot) {
  const SlotInfo& info = segment.slots[slot];
  news_.push_back({kind,
                   segment.own,
                   info.key,
                   {segment.id, slot, info.generation},
                   info.size_bytes,
                   info.checksum});
}

Result<SlotRef> DiskSlotStore::reserve(std::uint32_t size_bytes) {
  if (size_bytes == 0 || size_bytes > slot_bytes_) {
    return failure(Code::kInvalidArgument,
                   fmt::format("a block of {} B does not fit a slot of {} B in tier {}", size_bytes,
                               slot_bytes_, options_.tier_name));
  }
  const std::scoped_lock lock(mutex_);
  writing_ = true;
  if (with_free_.empty()) {
    return failure(may_grow_ ? Code::kOverloaded : Code::kNoSpace, "no free slot");
  }
  const SegmentPtr segment = find(*with_free_.begin());
  const std::uint32_t slot = segment->free_slots.front();
  segment->free_slots.pop_front();
  if (segment->free_slots.empty()) with_free_.erase(segment->id);
  --free_slots_;
  SlotInfo& info = segment->slots[slot];
  info.state = SlotState::kReserved;
  info.generation = ++counter_;
  ++segment->reserved;
  return SlotRef{segment->id, slot, info.generation};
}

void DiskSlotStore::free(SlotRef at) {
  const std::scoped_lock lock(mutex_);
  const SegmentPtr segment = find(at.segment);
  if (!segment || !segment->own || at.slot >= segment->slots.size()) return;
  SlotInfo& info = segment->slots[at.slot];
  if (info.generation != at.generation || info.state == SlotState::kFree) return;
  if (info.state == SlotState::kLive) {
    --segment->live;
    info.needs_tombstone = true;
  } else {
    --segment->reserved;
  }
  info.state = SlotState::kFree;
  if (info.needs_tombstone) tombstones_due_.push_back(at);
  if (!reservable(*segment)) return;
  segment->free_slots.push_back(at.slot);
  with_free_.insert(segment->id);
  ++free_slots_;
}

Result<std::shared_ptr<SegmentHandle>> DiskSlotStore::handle_of_other(const SegmentPtr& segment) {
  {
    const std::scoped_lock lock(mutex_);
    if (const auto it = handle_at_.find(segment->id); it != handle_at_.end()) {
      handles_.splice(handles_.begin(), handles_, it->second);
      return handles_.front().handle;
    }
  }
  auto opened = options_.opener->open(*segment->data_path, Access::kRead);
  if (!opened) return opened;
  std::list<CachedHandle> closed_outside_the_lock;
  const std::scoped_lock lock(mutex_);
  if (!find(segment->id) || handle_at_.contains(segment->id)) return opened;
  handles_.push_front({segment->id, *opened});
  handle_at_[segment->id] = handles_.begin();
  while (handles_.size() > std::max<std::uint32_t>(options_.handles_max, 1)) {
    handle_at_.erase(handles_.back().segment);
    closed_outside_the_lock.splice(closed_outside_the_lock.end(), handles_,
                                   std::prev(handles_.end()));
  }
  return opened;
}

Result<SlotAddress> DiskSlotStore::resolve(SlotRef at) {
  SegmentPtr segment;
  {
    const std::scoped_lock lock(mutex_);
    segment = find(at.segment);
    const bool there = segment && at.slot < segment->slots.size() &&
                       segment->slots[at.slot].generation == at.generation &&
                       segment->slots[at.slot].state != SlotState::kFree;
    if (!there) {
      return failure(Code::kNotFound,
                     fmt::format("slot {}:{} of generation {} is gone from tier {}", at.segment,
                                 at.slot, at.generation, options_.tier_name));
    }
  }
  SlotAddress address;
  address.offset_bytes =
      segment->header.data_offset_bytes + std::uint64_t{at.slot} * segment->header.slot_bytes;
  address.path = segment->data_path;
  if (segment->own) {
    address.handle = segment->handle;
    return address;
  }
  auto handle = handle_of_other(segment);
  if (!handle) return failure(handle.error());
  address.handle = std::move(*handle);
  return address;
}

Status DiskSlotStore::write_tombstone(const SegmentPtr& segment, std::uint32_t slot) {
  const std::scoped_lock log_lock(segment->log_mutex);
  IndexRecord record;
  {
    const std::scoped_lock lock(mutex_);
    const SlotInfo& info = segment->slots[slot];
    if (!info.needs_tombstone) return Status::ok();
    record.kind = RecordKind::kFreed;
    record.segment = segment->header.segment;
    record.slot = slot;
    // A reserved slot has its next generation already: all before it end.
    record.generation = info.state == SlotState::kFree ? info.generation : info.generation - 1;
    record.seq = ++counter_;
  }
  if (segment->log.full()) {
    // A rewritten log leaves out what has ended, so nothing is left to say.
    return rewrite_log(*segment);
  }
  if (auto status = segment->log.append(record); !status.is_ok()) return status;
  const std::scoped_lock lock(mutex_);
  segment->slots[slot].needs_tombstone = false;
  return Status::ok();
}

Result<SlotAddress> DiskSlotStore::prepare_write(SlotRef at) {
  SegmentPtr segment;
  bool ends_a_life = false;
  {
    const std::scoped_lock lock(mutex_);
    segment = find(at.segment);
    if (!segment || !segment->own || at.slot >= segment->slots.size() ||
        segment->slots[at.slot].generation != at.generation ||
        segment->slots[at.slot].state != SlotState::kReserved) {
      return failure(Code::kNotFound,
                     fmt::format("slot {}:{} of tier {} is not reserved; block not written",
                                 at.segment, at.slot, options_.tier_name));
    }
    ends_a_life = segment->slots[at.slot].needs_tombstone;
  }
  if (ends_a_life) {
    if (auto status = write_tombstone(segment, at.slot); !status.is_ok()) return failure(status);
  }
  SlotAddress address;
  address.handle = segment->handle;
  address.offset_bytes =
      segment->header.data_offset_bytes + std::uint64_t{at.slot} * segment->header.slot_bytes;
  address.path = segment->data_path;
  return address;
}

Status DiskSlotStore::commit(const WriteOp& op) {
  SegmentPtr segment;
  {
    const std::scoped_lock lock(mutex_);
    segment = find(op.at.segment);
  }
  const auto not_reserved = [&] {
    return Status(Code::kNotFound,
                  fmt::format("slot {}:{} of tier {} is not reserved any more; block not cached",
                              op.at.segment, op.at.slot, options_.tier_name));
  };
  if (!segment || !segment->own || op.at.slot >= segment->slots.size()) return not_reserved();
  if (op.size_bytes > segment->header.slot_bytes) {
    return {Code::kInvalidArgument, "a block larger than its slot"};
  }
  const std::scoped_lock log_lock(segment->log_mutex);
  if (segment->log.full()) {
    if (auto status = rewrite_log(*segment); !status.is_ok()) return status;
  }
  IndexRecord record;
  record.key = op.key;
  record.segment = segment->header.segment;
  record.slot = op.at.slot;
  record.size_bytes = op.size_bytes;
  record.generation = op.at.generation;
  record.checksum = op.checksum;
  {
    const std::scoped_lock lock(mutex_);
    const SlotInfo& info = segment->slots[op.at.slot];
    if (info.generation != op.at.generation || info.state != SlotState::kReserved ||
        !segments_.contains(segment->id)) {
      return not_reserved();
    }
    record.seq = ++counter_;
  }
  const Status appended = segment->log.append(record);
  const std::scoped_lock lock(mutex_);
  SlotInfo& info = segment->slots[op.at.slot];
  if (!appended.is_ok()) {
    // The record may have reached the file all the same: free() sees to its tombstone.
    info.needs_tombstone = true;
    return appended;
  }
  info.key = op.key;
  info.checksum = op.checksum;
  info.size_bytes = op.size_bytes;
  info.state = SlotState::kLive;
  --segment->reserved;
  ++segment->live;
  return Status::ok();
}

Status DiskSlotStore::rewrite_log(Segment& segment) {
  std::vector<IndexRecord> records;
  IndexRecord counter;
  {
    const std::scoped_lock lock(mutex_);
    records.reserve(segment.live + 1);
    for (std::uint32_t slot = 0; slot < segment.slots.size(); ++slot) {
      const SlotInfo& info = segment.slots[slot];
      if (info.state != SlotState::kLive) continue;
      // Generations come from the same counter as seqs and grow likewise.
      records.push_back({RecordKind::kPut, info.generation, info.key, segment.header.segment, slot,
                         info.size_bytes, info.generation, info.checksum});
    }
    counter.kind = RecordKind::kCounter;
    counter.segment = segment.header.segment;
    counter.seq = ++counter_;
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.seq < b.seq; });
  records.push_back(counter);
  LogHeader header = segment.header;
  ++header.epoch;
  auto log = IndexLog::create(segment.base + ".log", header, records);
  if (!log) return log.error();
  segment.log = std::move(*log);
  const std::scoped_lock lock(mutex_);
  segment.header.epoch = header.epoch;  // all else is read without the lock
  for (auto& info : segment.slots) info.needs_tombstone = false;
  return Status::ok();
}

std::size_t DiskSlotStore::changes(std::span<CatalogChange> out) {
  const std::scoped_lock lock(mutex_);
  const std::size_t count = std::min(out.size(), news_.size());
  std::copy_n(news_.begin(), count, out.begin());
  news_.erase(news_.begin(), news_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void DiskSlotStore::recheck(const CatalogChange& seen) {
  const std::scoped_lock lock(mutex_);
  if (rechecks_.size() < options_.changes_max) rechecks_.push_back(seen);
}

void DiskSlotStore::mark_busy() {
  const Nanos now = options_.clock->now();
  Nanos due = next_mark_.load(std::memory_order_relaxed);
  if (now < due || !next_mark_.compare_exchange_strong(due, now + kMarkEvery)) return;
  sharers_.mark(now);
}

TierReport DiskSlotStore::report() const {
  TierReport report;
  report.sharers = sharers_.count(options_.clock->now());
  report.errors = errors_.load(std::memory_order_relaxed);
  const auto degraded = degraded_.load(std::memory_order_relaxed);
  if ((degraded & kNotPreallocated) != 0) report.mode = "not preallocated";
  if ((degraded & kNoLocks) != 0) {
    report.mode += report.mode.empty() ? "no locks: fixed share" : ", no locks: fixed share";
  }
  report.follow_rounds = follow_rounds_.load(std::memory_order_relaxed);
  const std::scoped_lock lock(mutex_);
  std::uint64_t charged = 0;
  for (const auto& [id, segment] : segments_) {
    if (!segment->own) continue;
    const std::uint64_t size = segment->header.slot_bytes;
    report.used_bytes += size * (segment->live + segment->reserved);
    charged += segment->charge_bytes;
    report.capacity_bytes +=
        reservable(*segment) ? size * segment->slots.size() : size * segment->live;
  }
  const std::uint64_t spare = log_bytes(log_records_max(segment_slots_));
  const std::uint64_t charge = charge_of_segment();
  if (may_grow_ && share_bytes_ > charged + spare) {
    report.capacity_bytes +=
        (share_bytes_ - charged - spare) / charge * segment_slots_ * slot_bytes_;
  }
  report.free_bytes = report.capacity_bytes - report.used_bytes;
  return report;
}

}  // namespace kvstream
