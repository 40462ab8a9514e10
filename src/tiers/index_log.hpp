// The index log beside a segment: 64-byte records that say what its slots hold (docs/formats.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvstream/block.hpp"
#include "kvstream/status.hpp"
#include "tiers/segment_format.hpp"
#include "tiers/slot_store_files.hpp"

namespace kvstream {

inline constexpr std::size_t kLogRecordBytes = 64;

/// The first 64 bytes of a log. All a reader needs to read the segment by positioned reads.
struct LogHeader {
  FormatId format = FormatId::kPlain;
  std::uint32_t segment = 0;  ///< number, unique per writer
  std::uint64_t namespace_fingerprint = 0;
  std::uint32_t slot_bytes = 0;
  std::uint32_t slots = 0;
  std::uint64_t data_offset_bytes = 0;
  std::uint32_t epoch = 0;        ///< grows with each rewriting
  std::uint32_t records_max = 0;  ///< the log's bound
  std::uint64_t identity = 0;     ///< drawn when the segment is made: never the same twice
  bool operator==(const LogHeader&) const = default;
};

enum class RecordKind : std::uint32_t {
  kPut = 1,      ///< the slot holds `key`
  kFreed = 2,    ///< the slot holds nothing of `generation` or before
  kCounter = 3,  ///< carries seq over a rewriting
};

struct IndexRecord {
  RecordKind kind = RecordKind::kPut;
  std::uint64_t seq = 0;  ///< strictly growing within a log
  BlockKey key;
  std::uint32_t segment = 0;
  std::uint32_t slot = 0;
  std::uint32_t size_bytes = 0;
  std::uint64_t generation = 0;
  std::uint64_t checksum = 0;  ///< of the data
  bool operator==(const IndexRecord&) const = default;
};

using LogEntry = std::array<std::byte, kLogRecordBytes>;

LogEntry encode_header(const LogHeader& header);
std::optional<LogHeader> decode_header(const LogEntry& entry);
/// A record's checksum is tied to its header: records of another log or epoch do not decode.
std::uint64_t log_tag(const LogHeader& header);
LogEntry encode_record(const IndexRecord& record, std::uint64_t tag);
std::optional<IndexRecord> decode_record(const LogEntry& entry, std::uint64_t tag);

/// The bound of a log for that many slots, and its bytes on disk.
std::uint32_t log_records_max(std::uint32_t slots);
std::uint64_t log_bytes(std::uint32_t records_max);

/// How far a reader of a log is. A fresh cursor begins at the start.
struct LogCursor {
  std::uint64_t tag = 0;  ///< of the header last seen; another one restarts
  std::uint32_t position = 0;
  std::uint64_t last_seq = 0;
};

struct LogNews {
  LogHeader header;
  bool restarted = false;  ///< begins at the start (the first read, or a new epoch)
  bool more = false;       ///< there may be more: read again
  bool torn = false;       ///< the tail holds something that is no record (yet)
  std::uint32_t damaged = 0;
  std::uint64_t bytes_read = 0;
  std::vector<IndexRecord> records;
};

/// Reads the records behind the cursor, at most about `bytes_max`, and moves it. Something that is
/// no record is skipped when records stand behind it, else it is the tail, to be read again.
/// kNotFound: no such file; kCorrupt: no valid header.
Result<LogNews> read_log(const std::string& path, LogCursor& cursor, std::uint64_t bytes_max);

/// The writing end of a log. Owned by its segment, which locks it: one thread at a time.
class IndexLog {
 public:
  IndexLog() = default;
  /// Makes or replaces the log: preallocated at its bound under another name, then renamed.
  static Result<IndexLog> create(const std::string& path, const LogHeader& header,
                                 std::span<const IndexRecord> records);
  /// Goes on behind `position` records of a log that was just read.
  static Result<IndexLog> resume(const std::string& path, const LogHeader& header,
                                 std::uint32_t position);

  /// kNoSpace when the log is at its bound. After another error the log is as it was, though the
  /// record may yet be seen: it is overwritten by the next.
  Status append(const IndexRecord& record);
  /// A descriptor of its own to flush the log by, when something was appended since the last call.
  Result<UniqueFd> take_unflushed();
  bool full() const { return position_ >= header_.records_max; }
  std::uint32_t position() const { return position_; }
  const LogHeader& header() const { return header_; }

 private:
  UniqueFd fd_;
  std::string path_;
  LogHeader header_;
  std::uint64_t tag_ = 0;
  std::uint32_t position_ = 0;
  bool dirty_ = false;
};

}  // namespace kvstream
