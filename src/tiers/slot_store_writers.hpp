// Who writes under a root, who of them lives, and what their files take up.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"
#include "tiers/slot_store.hpp"
#include "tiers/slot_store_files.hpp"

namespace kvstream {

/// All files of one segment: <base>.seg or .h5, .log, .log.new, .adopt.<epoch>.
struct SegmentFiles {
  std::string base;
  std::string writer;       ///< the directory, or the part of `base` before its last '-'
  std::uint64_t bytes = 0;  ///< apparent sizes
  std::uint64_t log_bytes = 0;
  std::int64_t changed_at_ns = 0;  ///< last change of the log, else of the data (real time)
  bool has_data = false;
  bool has_log = false;
};

/// What lies under a root. Each writer is charged one log more than it has, of its largest size:
/// that is where a log is rewritten.
struct RootScan {
  std::vector<SegmentFiles> segments;
  std::map<std::string, std::uint64_t> bytes_of_writer;
  std::uint64_t total_bytes = 0;
};
Result<RootScan> scan_root(const std::string& root);

/// Removes all files of a segment. Its data is cut to nothing first, so that the space is free
/// even while a reader has it open; that reader sees a short read.
void remove_segment_files(const std::string& base);

/// This process among the writers to a root. Owned by the store; the chore thread's, but for what
/// is const. Holds the locks (kNodeLocal) or the heartbeat file (kShared) until it is destroyed.
class StoreWriters {
 public:
  /// To be called under the root's lock.
  static Result<StoreWriters> open(const SlotStoreOptions& options);
  StoreWriters(StoreWriters&&) noexcept = default;
  StoreWriters& operator=(StoreWriters&&) = delete;
  ~StoreWriters();

  bool is_own(const std::string& writer) const;
  /// To be called under the root's lock. A writer that cannot be looked at counts as alive.
  bool is_alive(const std::string& writer) const;
  /// Writers that are alive, this one included; of those in the scan. Under the root's lock.
  std::uint32_t count_alive(const RootScan& scan) const;
  /// Unlinks a segment of a dead writer, if this process gets the right to. Under the root's lock.
  bool remove_of_dead(const SegmentFiles& files) const;
  /// Removes the heartbeat files of the dead that left nothing else. Under the root's lock.
  void forget_dead(const RootScan& scan) const;
  /// Whether a dead writer's segments may be taken: not those of ranks that may yet come.
  bool may_take(const std::string& writer) const;

  /// The path, without extension, of this process's segment `number`.
  std::string segment_base(std::uint32_t number) const;
  const std::string& name() const { return own_.front(); }
  const std::vector<std::string>& own() const { return own_; }
  /// Logs of other writers of this namespace's place, sorted.
  Result<std::vector<std::string>> logs_of_others() const;
  /// kShared: touches the heartbeat file when it is due.
  Status heartbeat(Nanos now);
  /// Whether another has taken the right to unlink this segment of ours, or did unlink it.
  bool was_taken(const std::string& base) const;

 private:
  explicit StoreWriters(const SlotStoreOptions& options) : options_(options) {}
  Status take_directories();
  Status make_shared_name();
  std::optional<std::uint32_t> directory_index(const std::string& writer) const;
  std::optional<std::int64_t> beat_age_ns(const std::string& writer) const;

  SlotStoreOptions options_;
  std::string place_;             ///< kShared: the namespace's directory
  std::vector<std::string> own_;  ///< writers that this process is; the first gets new segments
  std::vector<FileLock> locks_;
  UniqueFd beat_;
  Nanos beat_due_ = 0;
};

}  // namespace kvstream
