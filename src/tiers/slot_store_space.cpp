// Space: making segments within the cap, taking those of the dead, giving back, tending logs.
#include <fmt/format.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "core/units.hpp"
#include "tiers/slot_store_disk.hpp"

namespace kvstream {
namespace {

constexpr Nanos kRootLockWait = 100 * kMillisecond;
constexpr Nanos kGrowPauseMax = 10 * kSecond;
constexpr Nanos kBalanceEvery = 5 * kSecond;
constexpr std::size_t kTombstonesPerChore = 256;

std::uint64_t draw_identity() {
  std::uint64_t identity = 0;
  if (::getrandom(&identity, sizeof identity, 0) != sizeof identity) {
    identity = static_cast<std::uint64_t>(SteadyClock::instance().now());
  }
  return identity;
}

}  // namespace

Status DiskSlotStore::chore() {
  Status first;
  const auto keep = [&first](Status status) {
    if (first.is_ok() && !status.is_ok()) first = std::move(status);
  };
  keep(writers_->heartbeat(options_.clock->now()));
  keep(flush_tombstones());
  keep(tend_logs());
  look_for_taken();
  answer_rechecks();
  keep(grow());
  keep(give_back());
  keep(follow());
  if (!first.is_ok()) count_error();
  chore_ended_ = options_.clock->now();
  return first;
}

Status DiskSlotStore::flush_tombstones() {
  for (std::size_t i = 0; i < kTombstonesPerChore; ++i) {
    SegmentPtr segment;
    SlotRef at;
    {
      const std::scoped_lock lock(mutex_);
      if (tombstones_due_.empty()) return Status::ok();
      at = tombstones_due_.front();
      tombstones_due_.pop_front();
      segment = find(at.segment);
      // One that was reserved again is seen to by prepare_write().
      if (!segment || segment->slots[at.slot].generation != at.generation) continue;
    }
    if (auto status = write_tombstone(segment, at.slot); !status.is_ok()) return status;
  }
  return Status::ok();
}

Status DiskSlotStore::tend_logs() {
  std::vector<SegmentPtr> own;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, segment] : segments_) {
      if (segment->own) own.push_back(segment);
    }
  }
  const Nanos now = options_.clock->now();
  const bool flush = on_network_ && now >= next_flush_;
  if (flush) next_flush_ = now + options_.follow_interval_ns;
  for (const auto& segment : own) {
    std::unique_lock log_lock(segment->log_mutex);
    // Before the bound, so that a commit seldom has to do it.
    if (segment->log.position() > segment->log.header().records_max / 4 * 3) {
      if (auto status = rewrite_log(*segment); !status.is_ok()) return status;
    }
    if (!flush) continue;
    // Only then do other nodes see the records; commits do not wait for it.
    const auto fd = segment->log.take_unflushed();
    log_lock.unlock();
    if (!fd) return fd.error();
    if (fd->is_open() && ::fdatasync(fd->get()) != 0) {
      return file_error("flush", segment->base + ".log", errno);
    }
  }
  return Status::ok();
}

void DiskSlotStore::look_for_taken() {
  const Nanos now = options_.clock->now();
  if (now < next_look_) return;
  next_look_ = now + options_.heartbeat_ns;
  std::vector<SegmentPtr> own;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, segment] : segments_) {
      if (segment->own) own.push_back(segment);
    }
  }
  for (const auto& segment : own) {
    if (!writers_->was_taken(segment->base)) continue;
    logger("tiers").warn("tier {}: {} was taken away by another process; its blocks are forgotten",
                         options_.tier_name, segment->base);
    {
      const std::scoped_lock lock(mutex_);
      for (std::uint32_t slot = 0; slot < segment->slots.size(); ++slot) {
        if (segment->slots[slot].state == SlotState::kLive) {
          push_change(CatalogChange::Kind::kRemoved, *segment, slot);
        }
      }
    }
    drop_segment(segment, OnlyIf::kAny);
  }
}

std::uint64_t DiskSlotStore::own_charge() const {
  const std::scoped_lock lock(mutex_);
  std::uint64_t bytes = 0;
  std::uint64_t spare = log_bytes(log_records_max(segment_slots_));
  for (const auto& [id, segment] : segments_) {
    if (!segment->own) continue;
    bytes += segment->charge_bytes;
    spare = std::max(spare, log_bytes(segment->header.records_max));
  }
  return bytes + spare;
}

Status DiskSlotStore::grow() {
  const Nanos now = options_.clock->now();
  {
    const std::scoped_lock lock(mutex_);
    const std::uint64_t low_water = std::max<std::uint32_t>(1, segment_slots_ / 4);
    if (!writing_ || free_slots_ >= low_water || now < next_grow_) return Status::ok();
  }
  const auto pause = [&](Status status) {
    next_grow_ = now + grow_pause_;
    grow_pause_ = std::min(grow_pause_ * 2, kGrowPauseMax);
    const std::scoped_lock lock(mutex_);
    may_grow_ = false;
    return status;
  };
  const auto root_lock = FileLock::take(options_.root + "/LOCK", kRootLockWait);
  if (!root_lock && !no_locks_) {
    if (root_lock.error().code() == Code::kTimedOut) return Status::ok();
    return pause(root_lock.error());
  }
  auto scan = scan_root(options_.root);
  if (!scan) return pause(scan.error());
  const std::uint64_t share =
      options_.cap_bytes /
      (no_locks_ ? options_.writers : std::max(options_.writers, writers_->count_alive(*scan)));
  {
    const std::scoped_lock lock(mutex_);
    share_bytes_ = share;
  }
  writers_->forget_dead(*scan);
  const std::uint64_t charge = charge_of_segment();
  if (own_charge() + charge > share) return pause(Status::ok());
  const auto fits = [&] {
    // This writer's spare log comes with its first segment, or grows with a larger one.
    std::uint64_t spare = log_bytes(log_records_max(segment_slots_));
    for (const auto& files : scan->segments) {
      if (files.writer == writers_->name()) spare -= std::min(spare, files.log_bytes);
    }
    return scan->total_bytes + charge + spare <= options_.cap_bytes;
  };
  while (!fits()) {
    const std::size_t before = scan->segments.size();
    if (!reclaim_one(*scan)) return pause(Status::ok());
    scan = scan_root(options_.root);
    if (!scan) return pause(scan.error());
    if (scan->segments.size() >= before) return pause(Status::ok());
  }
  if (auto status = make_segment(); !status.is_ok()) return pause(status);
  grow_pause_ = kSecond;
  next_grow_ = 0;
  const std::scoped_lock lock(mutex_);
  may_grow_ = true;
  return Status::ok();
}

Status DiskSlotStore::make_segment() {
  auto segment = std::make_shared<Segment>();
  const std::uint32_t number = next_number_++;
  segment->own = true;
  segment->base = writers_->segment_base(number);
  const FormatId format = options_.format->id();
  segment->data_path =
      std::make_shared<const std::string>(segment->base + segment_extension(format));
  const auto made =
      options_.format->create({*segment->data_path, segment_slots_, slot_bytes_,
                               options_.namespace_fingerprint, writers_->name(), number});
  if (!made) return made.error();
  const auto fail = [&](Status status) {
    remove_segment_files(segment->base);
    return status;
  };
  if (!made->preallocated && (degraded_.fetch_or(kNotPreallocated) & kNotPreallocated) == 0) {
    logger("tiers").warn(
        "tier {}: the file system of {} cannot allocate ahead; writes may fail "
        "for want of space",
        options_.tier_name, options_.root);
  }
  auto handle = options_.opener->open(*segment->data_path, Access::kReadWrite);
  if (!handle) return fail(handle.error());
  segment->handle = std::move(*handle);
  segment->header = {format,
                     number,
                     options_.namespace_fingerprint,
                     slot_bytes_,
                     segment_slots_,
                     made->data_offset_bytes,
                     1,
                     log_records_max(segment_slots_),
                     draw_identity()};
  auto log = IndexLog::create(segment->base + ".log", segment->header, {});
  if (!log) return fail(log.error());
  segment->log = std::move(*log);
  segment->charge_bytes = made->file_bytes + log_bytes(segment->header.records_max);
  segment->slots.resize(segment_slots_);
  for (std::uint32_t slot = 0; slot < segment_slots_; ++slot) segment->free_slots.push_back(slot);
  add_segment(segment);
  return Status::ok();
}

bool DiskSlotStore::reclaim_one(const RootScan& scan) {
  if (!unusable_.empty()) {
    remove_segment_files(unusable_.back());
    unusable_.pop_back();
    return true;
  }
  std::vector<const SegmentFiles*> candidates;
  for (const auto& files : scan.segments) {
    if (!writers_->is_own(files.writer) && writers_->may_take(files.writer)) {
      candidates.push_back(&files);
    }
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const auto* a, const auto* b) { return a->changed_at_ns < b->changed_at_ns; });
  for (const auto* files : candidates) {
    if (writers_->remove_of_dead(*files)) return true;
  }
  return false;
}

bool DiskSlotStore::drop_segment(const SegmentPtr& segment, OnlyIf only_if) {
  const std::scoped_lock lock(mutex_);
  if (only_if == OnlyIf::kEmpty && segment->live + segment->reserved > 0) return false;
  if (with_free_.erase(segment->id) > 0) free_slots_ -= segment->free_slots.size();
  segments_.erase(segment->id);
  return true;
}

Status DiskSlotStore::give_back() {
  const Nanos now = options_.clock->now();
  if (now < next_balance_) return Status::ok();
  next_balance_ = now + kBalanceEvery;
  SegmentPtr empty;
  bool useless = false;
  {
    const std::scoped_lock lock(mutex_);
    for (const auto& [id, segment] : segments_) {
      if (!segment->own || segment->live + segment->reserved > 0) continue;
      empty = segment;
      useless = !reservable(*segment);
      if (useless) break;
    }
  }
  if (!empty) return Status::ok();
  const auto drop = [&] {
    if (drop_segment(empty, OnlyIf::kEmpty)) remove_segment_files(empty->base);
  };
  if (useless) {
    drop();
    return Status::ok();
  }
  const auto root_lock = FileLock::take(options_.root + "/LOCK", kRootLockWait);
  if (!root_lock) return Status::ok();
  const auto scan = scan_root(options_.root);
  if (!scan) return scan.error();
  const std::uint64_t share =
      options_.cap_bytes / std::max(options_.writers, writers_->count_alive(*scan));
  {
    const std::scoped_lock lock(mutex_);
    share_bytes_ = share;
  }
  // What another needs for a first segment: its spare log comes with it.
  const std::uint64_t charge = charge_of_segment() + log_bytes(log_records_max(segment_slots_));
  if (own_charge() <= share || scan->total_bytes + charge <= options_.cap_bytes) {
    return Status::ok();
  }
  const bool other_is_below =
      std::any_of(scan->bytes_of_writer.begin(), scan->bytes_of_writer.end(), [&](const auto& w) {
        return w.second + charge <= share && !writers_->is_own(w.first) &&
               writers_->is_alive(w.first);
      });
  if (other_is_below) drop();
  return Status::ok();
}

}  // namespace kvstream
