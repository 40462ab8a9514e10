// Opening a slot store: checks, taking up directories, recovery.
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "core/units.hpp"
#include "tiers/slot_store_disk.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kSlotAlignment = 4096;
constexpr std::uint32_t kSegmentSlotsMin = 8;
constexpr std::uint32_t kSegmentsWanted = 4;  ///< in a writer's share of the cap
constexpr std::uint64_t kCounterSlack = 1ULL << 20U;
constexpr int kFollowsAtOpenMax = 16;

std::uint64_t file_size(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? static_cast<std::uint64_t>(info.st_size) : 0;
}

std::uint32_t number_of(const std::string& base) {
  std::uint32_t number = 0;
  const auto slash = base.rfind('/');
  std::from_chars(base.data() + slash + 2, base.data() + base.size(), number);
  return number;
}

}  // namespace

Result<std::unique_ptr<SlotStore>> DiskSlotStore::open(SlotStoreOptions options) {
  std::unique_ptr<DiskSlotStore> store(new DiskSlotStore(std::move(options)));
  if (auto status = store->check_options(); !status.is_ok()) return failure(status);
  const auto& at = store->options_;
  if (auto status = make_directories(at.root); !status.is_ok()) return failure(status);
  if (auto status = store->choose_segment_shape(); !status.is_ok()) return failure(status);
  store->on_network_ = on_network_file_system(at.root);
  {
    const auto lock = FileLock::take(at.root + "/LOCK", at.lock_wait_ns);
    store->no_locks_ =
        !lock && lock.error().code() == Code::kUnavailable && at.layout == StoreLayout::kShared;
    if (!lock && !store->no_locks_) return failure(lock.error());
    if (store->no_locks_) store->degraded_.fetch_or(kNoLocks);
    const auto scan = scan_root(at.root);
    if (!scan) return failure(scan.error());
    if (auto status = store->check_disk(*scan); !status.is_ok()) return failure(status);
    auto writers = StoreWriters::open(at);
    if (!writers) return failure(writers.error());
    store->writers_ = std::make_unique<StoreWriters>(std::move(*writers));
    store->sharers_ = SharersBoard::open(at.root + "/SHARERS." + at.node, at.clock->now());
  }
  if (auto status = store->recover(); !status.is_ok()) return failure(status);
  {
    const auto lock = FileLock::take(at.root + "/LOCK", at.lock_wait_ns);
    if (!lock && !store->no_locks_) return failure(lock.error());
    auto scan = scan_root(at.root);
    if (!scan) return failure(scan.error());
    store->share_bytes_ = at.cap_bytes / std::max(at.writers, store->writers_->count_alive(*scan));
    if (auto status = store->shrink_to_cap(std::move(*scan)); !status.is_ok()) {
      return failure(status);
    }
  }
  store->publish_recovered();
  for (int i = 0; i < kFollowsAtOpenMax; ++i) {
    if (auto status = store->follow(); !status.is_ok()) {
      logger("tiers").warn("tier {}: {}", at.tier_name, status.message());
    }
    if (store->round_.empty()) break;
  }
  return std::unique_ptr<SlotStore>(std::move(store));
}

DiskSlotStore::~DiskSlotStore() {
  // What was freed stays freed in the next run; a crash would bring it back, which does no harm.
  while (writers_ && !tombstones_due_.empty()) {
    if (!flush_tombstones().is_ok()) break;
  }
}

Status DiskSlotStore::check_options() {
  if (options_.root.empty()) {
    return {Code::kInvalidArgument,
            fmt::format("tier {} has no path; say KIND:PATH", options_.tier_name)};
  }
  if (options_.cap_bytes == 0) {
    return {Code::kInvalidArgument,
            fmt::format("tier {} has no cap; add cap=SIZE, e.g. cap=2GiB", options_.tier_name)};
  }
  if (options_.block_bytes_max == 0 || !options_.clock || !options_.format || !options_.opener) {
    return {Code::kInvalidArgument, fmt::format("tier {} was given no block size, clock, format or "
                                                "opener",
                                                options_.tier_name)};
  }
  while (options_.root.size() > 1 && options_.root.back() == '/') options_.root.pop_back();
  options_.writers = std::max<std::uint32_t>(options_.writers, 1);
  options_.writer_index %= options_.writers;
  slot_bytes_ = (options_.block_bytes_max + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment;
  return Status::ok();
}

std::uint64_t DiskSlotStore::charge_of_segment() const {
  return options_.format->file_bytes_max(segment_slots_, slot_bytes_) +
         log_bytes(log_records_max(segment_slots_));
}

Status DiskSlotStore::choose_segment_shape() {
  const std::uint64_t share = options_.cap_bytes / options_.writers;
  const std::uint64_t wanted = std::min(options_.segment_bytes_max, share / kSegmentsWanted);
  segment_slots_ = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(wanted / slot_bytes_, kSegmentSlotsMin, 1U << 24U));
  const auto charge_with_spare = [&](std::uint64_t segments) {
    return charge_of_segment() * segments + log_bytes(log_records_max(segment_slots_));
  };
  while (segment_slots_ > kSegmentSlotsMin && charge_with_spare(kSegmentsWanted) > share) {
    segment_slots_ = std::max(kSegmentSlotsMin,
                              segment_slots_ - std::max<std::uint32_t>(1, segment_slots_ / 64));
  }
  if (charge_with_spare(1) > share) {
    return {Code::kInvalidArgument,
            fmt::format("tier {}: a cap of {} is too small for {} writer(s) with blocks of {}; "
                        "give at least {}",
                        options_.tier_name, format_size(options_.cap_bytes), options_.writers,
                        format_size(slot_bytes_),
                        format_size(charge_with_spare(1) * options_.writers))};
  }
  return Status::ok();
}

Status DiskSlotStore::check_disk(const RootScan& scan) const {
  struct statvfs disk {};
  if (::statvfs(options_.root.c_str(), &disk) != 0) {
    return file_error("look at the file system of", options_.root, errno);
  }
  const std::uint64_t free_bytes = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  if (free_bytes + scan.total_bytes >= options_.cap_bytes) return Status::ok();
  return {Code::kInvalidArgument,
          fmt::format("tier {}: the cap of {} is larger than what {} has ({} free, {} ours "
                      "already); lower cap= or free space",
                      options_.tier_name, format_size(options_.cap_bytes), options_.root,
                      format_size(free_bytes), format_size(scan.total_bytes))};
}

Status DiskSlotStore::recover() {
  if (options_.layout == StoreLayout::kShared) return Status::ok();
  const auto scan = scan_root(options_.root);
  if (!scan) return scan.error();
  for (const auto& files : scan->segments) {
    if (!writers_->is_own(files.writer)) continue;
    if (files.writer == writers_->name()) {
      next_number_ = std::max(next_number_, number_of(files.base) + 1);
    }
    if (!files.has_log || !files.has_data) {
      // Its making, or its end, was cut short.
      remove_segment_files(files.base);
      continue;
    }
    if (auto status = recover_segment(files.base); !status.is_ok()) {
      logger("tiers").warn("tier {}: {}; segment given up", options_.tier_name, status.message());
      unusable_.push_back(files.base);
    }
  }
  return Status::ok();
}

Status DiskSlotStore::recover_segment(const std::string& base) {
  const std::string log_path = base + ".log";
  std::remove((log_path + ".new").c_str());
  LogCursor cursor;
  std::vector<IndexRecord> records;
  LogNews news;
  std::uint64_t damaged = 0;
  do {
    auto read = read_log(log_path, cursor, UINT64_MAX);
    if (!read) return read.error();
    news = std::move(*read);
    damaged += news.damaged + (news.torn ? 1 : 0);
    records.insert(records.end(), news.records.begin(), news.records.end());
  } while (news.more);
  if (news.header.namespace_fingerprint != options_.namespace_fingerprint) {
    unusable_.push_back(base);
    return Status::ok();
  }
  auto segment = std::make_shared<Segment>();
  segment->own = true;
  segment->base = base;
  segment->header = news.header;
  const std::string data_path = base + segment_extension(news.header.format);
  const std::uint64_t data_bytes = file_size(data_path);
  if (data_bytes <
      news.header.data_offset_bytes + std::uint64_t{news.header.slots} * news.header.slot_bytes) {
    return {Code::kCorrupt, fmt::format("{} is shorter than its log says", data_path)};
  }
  segment->data_path = std::make_shared<const std::string>(data_path);
  auto log = IndexLog::resume(log_path, news.header, cursor.position);
  if (!log) return log.error();
  segment->log = std::move(*log);
  auto handle = options_.opener->open(data_path, Access::kReadWrite);
  if (!handle) return handle.error();
  segment->handle = std::move(*handle);
  segment->charge_bytes = data_bytes + log_bytes(news.header.records_max);

  segment->slots.resize(news.header.slots);
  for (const auto& record : records) {
    counter_ = std::max({counter_, record.seq, record.generation});
    SlotInfo& info = segment->slots[record.slot];
    if (record.kind == RecordKind::kCounter || record.generation < info.generation) continue;
    info.generation = record.generation;
    info.state = record.kind == RecordKind::kPut ? SlotState::kLive : SlotState::kFree;
    info.key = record.key;
    info.checksum = record.checksum;
    info.size_bytes = record.size_bytes;
  }
  // A lost record may have carried a later count: its generations must not come again.
  if (damaged > 0) counter_ += kCounterSlack;
  for (std::uint32_t slot = 0; slot < segment->slots.size(); ++slot) {
    SlotInfo& info = segment->slots[slot];
    if (info.state == SlotState::kLive && info.size_bytes > options_.block_bytes_max) {
      info.state = SlotState::kFree;
      info.needs_tombstone = true;
    }
    if (info.state == SlotState::kLive) {
      ++segment->live;
    } else if (reservable(*segment)) {
      segment->free_slots.push_back(slot);
    }
  }
  add_segment(segment);
  return Status::ok();
}

void DiskSlotStore::add_segment(const SegmentPtr& segment) {
  const std::scoped_lock lock(mutex_);
  segment->id = next_id_++;
  segments_[segment->id] = segment;
  if (segment->free_slots.empty()) return;
  with_free_.insert(segment->id);
  free_slots_ += segment->free_slots.size();
}

Status DiskSlotStore::shrink_to_cap(RootScan scan) {
  // The cap may be lower than in the last run.
  while (scan.total_bytes > options_.cap_bytes) {
    if (!reclaim_one(scan)) {
      const SegmentFiles* oldest = nullptr;
      for (const auto& files : scan.segments) {
        if (writers_->is_own(files.writer) &&
            (oldest == nullptr || files.changed_at_ns < oldest->changed_at_ns)) {
          oldest = &files;
        }
      }
      if (oldest == nullptr) break;
      for (const auto& [id, segment] : segments_) {
        if (segment->base != oldest->base) continue;
        drop_segment(SegmentPtr(segment), OnlyIf::kAny);
        break;
      }
      remove_segment_files(oldest->base);
    }
    const std::size_t before = scan.segments.size();
    auto again = scan_root(options_.root);
    if (!again) return again.error();
    scan = std::move(*again);
    if (scan.segments.size() >= before) break;
  }
  if (scan.total_bytes > options_.cap_bytes) {
    logger("tiers").warn("tier {}: {} lie under {}, more than the cap of {}; others hold them",
                         options_.tier_name, format_size(scan.total_bytes), options_.root,
                         format_size(options_.cap_bytes));
  }
  return Status::ok();
}

void DiskSlotStore::publish_recovered() {
  const std::scoped_lock lock(mutex_);
  for (const auto& [id, segment] : segments_) {
    for (std::uint32_t slot = 0; slot < segment->slots.size(); ++slot) {
      if (segment->slots[slot].state == SlotState::kLive) {
        push_change(CatalogChange::Kind::kAdded, *segment, slot);
      }
    }
  }
  // Oldest first: the catalog takes the order for that of use.
  std::sort(news_.begin(), news_.end(), [](const CatalogChange& a, const CatalogChange& b) {
    return a.at.generation < b.at.generation;
  });
}

}  // namespace kvstream
