// The SlotStore on real files; split over slot_store.cpp (slots), slot_store_open.cpp (opening,
// recovery), slot_store_follow.cpp (what others wrote) and slot_store_space.cpp (making, giving
// back).
#pragma once

#include <atomic>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/logging.hpp"
#include "tiers/index_log.hpp"
#include "tiers/slot_store.hpp"
#include "tiers/slot_store_writers.hpp"

namespace kvstream {

/// See SlotStore. Locks: `log_mutex` of a segment, then `mutex_`; no file is touched under mutex_,
/// so that the progress thread never waits for a disk behind it.
class DiskSlotStore final : public SlotStore {
 public:
  static Result<std::unique_ptr<SlotStore>> open(SlotStoreOptions options);
  ~DiskSlotStore() override;

  std::uint32_t slot_bytes() const override { return slot_bytes_; }
  Result<SlotRef> reserve(std::uint32_t size_bytes) override;
  void free(SlotRef at) override;
  Result<SlotAddress> resolve(SlotRef at) override;
  Result<SlotAddress> prepare_write(SlotRef at) override;
  Status commit(const WriteOp& op) override;
  std::size_t changes(std::span<CatalogChange> out) override;
  void recheck(const CatalogChange& seen) override;
  Status chore() override;
  void mark_busy() override;
  void count_error() override { errors_.fetch_add(1, std::memory_order_relaxed); }
  TierReport report() const override;

 private:
  static constexpr std::uint8_t kNotPreallocated = 1;
  static constexpr std::uint8_t kNoLocks = 2;
  enum class OnlyIf : std::uint8_t { kAny, kEmpty };
  enum class SlotState : std::uint8_t { kFree, kReserved, kLive };

  struct SlotInfo {
    BlockKey key;
    std::uint64_t generation = 0;
    std::uint64_t checksum = 0;
    std::uint32_t size_bytes = 0;
    SlotState state = SlotState::kFree;
    bool needs_tombstone = false;  ///< the log still says that an ended life goes on
  };

  struct Segment {
    std::uint32_t id = 0;
    bool own = false;
    std::string base;
    std::shared_ptr<const std::string> data_path;
    LogHeader header;
    std::uint64_t charge_bytes = 0;
    std::vector<SlotInfo> slots;
    std::uint32_t live = 0;
    std::uint32_t reserved = 0;
    // Own ones only.
    std::deque<std::uint32_t> free_slots;  ///< first in, first out: a slot rests before its reuse
    std::shared_ptr<SegmentHandle> handle;
    std::mutex log_mutex;
    IndexLog log;  ///< under log_mutex
    // Others' only; the chore thread's.
    LogCursor cursor;
    std::vector<bool> seen_since_restart;
    bool restarting = false;
  };
  using SegmentPtr = std::shared_ptr<Segment>;
  struct CachedHandle {
    std::uint32_t segment = 0;
    std::shared_ptr<SegmentHandle> handle;
  };

  explicit DiskSlotStore(SlotStoreOptions options) : options_(std::move(options)) {}

  // Opening.
  Status check_options();
  Status choose_segment_shape();
  Status check_disk(const RootScan& scan) const;
  Status shrink_to_cap(RootScan scan);
  Status recover();
  Status recover_segment(const std::string& base);
  void publish_recovered();

  // Slots.
  SegmentPtr find(std::uint32_t segment) const;
  Result<std::shared_ptr<SegmentHandle>> handle_of_other(const SegmentPtr& segment);
  Status write_tombstone(const SegmentPtr& segment, std::uint32_t slot);
  Status rewrite_log(Segment& segment);
  void add_segment(const SegmentPtr& segment);
  void push_change(CatalogChange::Kind kind, const Segment& segment, std::uint32_t slot);
  bool reservable(const Segment& segment) const;

  // Chores.
  Status flush_tombstones();
  Status tend_logs();
  void answer_rechecks();
  Status follow();
  Status follow_log(const std::string& path, std::uint64_t& budget_bytes, bool& more);
  void apply(Segment& segment, const LogNews& news);
  void apply_record(Segment& segment, const IndexRecord& record);
  void forget(const std::string& log_path);
  Status grow();
  Status make_segment();
  bool reclaim_one(const RootScan& scan);
  Status give_back();
  bool drop_segment(const SegmentPtr& segment, OnlyIf only_if);
  void look_for_taken();
  std::uint64_t charge_of_segment() const;
  std::uint64_t own_charge() const;

  SlotStoreOptions options_;
  std::uint32_t slot_bytes_ = 0;
  std::uint32_t segment_slots_ = 0;
  std::unique_ptr<StoreWriters> writers_;
  SharersBoard sharers_;
  bool on_network_ = false;

  mutable std::mutex mutex_;
  std::unordered_map<std::uint32_t, SegmentPtr> segments_;
  std::set<std::uint32_t> with_free_;  ///< own segments that reserve() may take from
  std::uint64_t free_slots_ = 0;       ///< in with_free_
  std::uint32_t next_id_ = 0;
  std::uint64_t counter_ = 0;  ///< generations and seqs
  std::deque<CatalogChange> news_;
  std::deque<SlotRef> tombstones_due_;
  std::deque<CatalogChange> rechecks_;
  std::list<CachedHandle> handles_;  ///< most recently used first
  std::unordered_map<std::uint32_t, std::list<CachedHandle>::iterator> handle_at_;
  bool writing_ = false;  ///< something was ever reserved
  bool may_grow_ = true;  ///< else reserve() says kNoSpace when no slot is free
  std::uint64_t share_bytes_ = 0;

  // The chore thread's.
  std::map<std::string, std::uint32_t> followed_;  ///< log path -> segment id
  std::vector<std::string> unusable_;  ///< own segments of other namespaces, or broken: bases
  std::deque<std::string> round_;
  std::optional<Nanos> last_round_;  ///< when the last round of following began
  Nanos next_grow_ = 0;
  Nanos grow_pause_ = kSecond;
  Nanos next_balance_ = 0;
  Nanos next_flush_ = 0;
  Nanos next_look_ = 0;
  std::uint32_t next_number_ = 0;
  Nanos chore_ended_ = 0;
  bool no_locks_ = false;
  std::atomic<std::uint8_t> degraded_{0};  ///< for report()
  std::atomic<std::uint64_t> follow_rounds_{0};

  std::atomic<Nanos> next_mark_{0};
  std::atomic<std::uint64_t> errors_{0};
  mutable LogLimiter warn_limit_;
};

}  // namespace kvstream
