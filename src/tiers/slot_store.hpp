// Segments of fixed slots with an index log each: the frame that nvme and pfs share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kvstream/clock.hpp"
#include "kvstream/tier.hpp"
#include "tiers/segment_format.hpp"

namespace kvstream {

/// An open segment file; closed by its destructor. What is inside is the opener's.
class SegmentHandle {
 public:
  virtual ~SegmentHandle() = default;
};

enum class Access : std::uint8_t { kRead, kReadWrite };

/// Opens segment files the way a tier wants them (O_DIRECT, MPI_File, ...). Any thread that calls
/// resolve() or chore(), several at once.
class FileOpener {
 public:
  virtual ~FileOpener() = default;
  /// kNotFound when there is no such file.
  virtual Result<std::shared_ptr<SegmentHandle>> open(const std::string& path, Access access) = 0;
};

/// Where the bytes of a slot lie. Holding it keeps the file open, nothing more.
struct SlotAddress {
  std::shared_ptr<SegmentHandle> handle;
  std::uint64_t offset_bytes = 0;
  std::shared_ptr<const std::string> path;  ///< for messages
};

/// Who may write where, and how it is known who lives (DESIGN: one writer for life).
enum class StoreLayout : std::uint8_t {
  kNodeLocal,  ///< <root>/r<i>/, held by flock; a free one is taken up again with its blocks
  kShared,     ///< <root>/<fingerprint>/, writers unique to a process, alive by heartbeat file
};

struct SlotStoreOptions {
  std::string tier_name;  ///< for messages
  std::string root;       ///< made when missing
  StoreLayout layout = StoreLayout::kNodeLocal;
  std::uint64_t cap_bytes = 0;        ///< all files under the root, of all writers
  std::uint32_t block_bytes_max = 0;  ///< slot = this rounded up to 4 KiB
  std::uint64_t namespace_fingerprint = 0;
  std::uint32_t writer_index = 0;  ///< of this process among the job's writers to the root
  std::uint32_t writers = 1;       ///< the job's writers to the root; more live ones are noticed
  std::string job = "job0";        ///< kShared: first part of a writer's name
  std::string node = "node0";      ///< whose ranks count as sharers
  const Clock* clock = nullptr;
  std::shared_ptr<const SegmentFormat> format;
  std::shared_ptr<FileOpener> opener;

  std::uint64_t segment_bytes_max = 1ULL << 30U;
  Nanos follow_interval_ns = kSecond;
  std::uint64_t follow_bytes_max = 4ULL << 20U;  ///< of logs read by one chore()
  std::uint32_t handles_max = 256;               ///< open files of other writers
  std::uint32_t changes_max = 1U << 16U;         ///< following pauses at so much unread news
  Nanos heartbeat_ns = 10 * kSecond;
  Nanos dead_after_ns = 60 * kSecond;
  Nanos lock_wait_ns = 10 * kSecond;  ///< for <root>/LOCK, when opened
};

/// Options as every tier of this frame takes them from its spec and context; the caller adds
/// layout, writer_index, writers, format and opener.
SlotStoreOptions slot_store_options(const TierSpec& spec, const TierContext& context);

/// What one process keeps and knows under one root. Owned by a tier, which moves the bytes.
///
/// reserve, free, changes: one thread. resolve, prepare_write, commit, mark_busy: any number of I/O
/// threads. chore: one thread. All of these at the same time; report, recheck: any thread.
/// Memory: about 56 B a slot known, own or others'. Files: see the cap.
///
/// A write is: reserve -> prepare_write -> the tier writes the bytes -> commit -> published.
class SlotStore {
 public:
  /// Locks or names the writer, checks cap and disk, replays its logs (their blocks wait in
  /// changes()) and reads what others have written so far. Errors say how to cure them.
  static Result<std::unique_ptr<SlotStore>> open(SlotStoreOptions options);
  virtual ~SlotStore() = default;

  virtual std::uint32_t slot_bytes() const = 0;
  /// As Tier::reserve.
  virtual Result<SlotRef> reserve(std::uint32_t size_bytes) = 0;
  /// As Tier::free. The slot's tombstone reaches the log before the slot is written again.
  virtual void free(SlotRef at) = 0;
  /// Address of a slot of anybody's; kNotFound when its segment or generation is gone.
  virtual Result<SlotAddress> resolve(SlotRef at) = 0;
  /// To be called before the bytes of a reserved slot are written: ends the life of what was there.
  virtual Result<SlotAddress> prepare_write(SlotRef at) = 0;
  /// To be called once the bytes are written: appends the record. 64 B into the page cache.
  virtual Status commit(const WriteOp& op) = 0;
  /// As Tier::changes, recheck, chore.
  virtual std::size_t changes(std::span<CatalogChange> out) = 0;
  virtual void recheck(const CatalogChange& seen) = 0;
  virtual Status chore() = 0;
  /// Says to the node's other ranks that this one keeps the device busy; call it on every I/O.
  virtual void mark_busy() = 0;
  /// Counts an I/O error, for report().
  virtual void count_error() = 0;
  /// Capacity, use, sharers and errors; `mode` holds what is degraded, e.g. "not preallocated", or
  /// is empty: the tier puts its own in front.
  virtual TierReport report() const = 0;
};

/// "dev:259:1": the device that holds `path`, which must exist.
Result<std::string> device_id_of(const std::string& path);

/// Whether `path` lies on a network file system, where only fdatasync moves bytes to the server.
bool on_network_file_system(const std::string& path);

/// mkdir -p; one line that says what to do when it fails.
Status make_directories(const std::string& path);

}  // namespace kvstream
