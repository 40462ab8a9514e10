#include "tiers/index_log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/checksum.hpp"

namespace kvstream {
namespace {

static_assert(std::endian::native == std::endian::little, "logs are little endian as they lie");

constexpr std::uint64_t kMagic = 0x31474F4C5353564BULL;  // "KVSSLOG1"
constexpr std::uint16_t kVersion = 1;
constexpr std::uint32_t kRecordsMin = 255;
constexpr std::uint64_t kFirstReadBytes = 4096;
constexpr std::uint64_t kReadBytes = 256 * 1024;
constexpr std::size_t kSummedBytes = kLogRecordBytes - sizeof(std::uint64_t);

std::uint64_t sum_of(const LogEntry& entry) {
  return checksum(std::span(entry).first(kSummedBytes));
}

/// Copies fields one after the other into an entry, or out of it.
class FieldWriter {
 public:
  explicit FieldWriter(LogEntry& entry) : at_(entry.data()) {}
  template <class T>
  FieldWriter& put(const T& value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }

 private:
  std::byte* at_;
};

class FieldReader {
 public:
  explicit FieldReader(const LogEntry& entry) : at_(entry.data()) {}
  template <class T>
  FieldReader& get(T& value) {
    std::memcpy(&value, at_, sizeof value);
    at_ += sizeof value;
    return *this;
  }

 private:
  const std::byte* at_;
};

std::uint64_t stored_sum(const LogEntry& entry) {
  std::uint64_t sum = 0;
  std::memcpy(&sum, entry.data() + kSummedBytes, sizeof sum);
  return sum;
}

bool all_zero(const LogEntry& entry) {
  return std::all_of(entry.begin(), entry.end(), [](std::byte b) { return b == std::byte{0}; });
}

LogEntry entry_at(const std::vector<std::byte>& bytes, std::size_t index) {
  LogEntry entry;
  std::memcpy(entry.data(), bytes.data() + index * kLogRecordBytes, kLogRecordBytes);
  return entry;
}

std::uint64_t offset_of(std::uint32_t position) {
  return (std::uint64_t{position} + 1) * kLogRecordBytes;
}

}  // namespace

LogEntry encode_header(const LogHeader& header) {
  LogEntry entry{};
  FieldWriter(entry)
      .put(kMagic)
      .put(kVersion)
      .put(static_cast<std::uint16_t>(header.format))
      .put(header.segment)
      .put(header.namespace_fingerprint)
      .put(header.slot_bytes)
      .put(header.slots)
      .put(header.data_offset_bytes)
      .put(header.epoch)
      .put(header.records_max)
      .put(header.identity)
      .put(std::uint64_t{0});
  const std::uint64_t sum = sum_of(entry);
  std::memcpy(entry.data() + kSummedBytes, &sum, sizeof sum);
  return entry;
}

std::optional<LogHeader> decode_header(const LogEntry& entry) {
  std::uint64_t magic = 0;
  std::uint16_t version = 0;
  std::uint16_t format = 0;
  LogHeader header;
  FieldReader(entry)
      .get(magic)
      .get(version)
      .get(format)
      .get(header.segment)
      .get(header.namespace_fingerprint)
      .get(header.slot_bytes)
      .get(header.slots)
      .get(header.data_offset_bytes)
      .get(header.epoch)
      .get(header.records_max)
      .get(header.identity);
  const bool sane = magic == kMagic && version == kVersion && format <= 1 && header.slots > 0 &&
                    header.slot_bytes > 0 && header.records_max > 0 &&
                    header.records_max <= log_records_max(header.slots);
  if (!sane || stored_sum(entry) != sum_of(entry)) return std::nullopt;
  header.format = static_cast<FormatId>(format);
  return header;
}

std::uint64_t log_tag(const LogHeader& header) { return stored_sum(encode_header(header)); }

LogEntry encode_record(const IndexRecord& record, std::uint64_t tag) {
  LogEntry entry{};
  FieldWriter(entry)
      .put(record.seq)
      .put(record.key.bytes)
      .put(record.segment)
      .put(record.slot)
      .put(record.size_bytes)
      .put(static_cast<std::uint32_t>(record.kind))
      .put(record.generation)
      .put(record.checksum);
  const std::uint64_t sum = sum_of(entry) ^ tag;
  std::memcpy(entry.data() + kSummedBytes, &sum, sizeof sum);
  return entry;
}

std::optional<IndexRecord> decode_record(const LogEntry& entry, std::uint64_t tag) {
  IndexRecord record;
  std::uint32_t kind = 0;
  FieldReader(entry)
      .get(record.seq)
      .get(record.key.bytes)
      .get(record.segment)
      .get(record.slot)
      .get(record.size_bytes)
      .get(kind)
      .get(record.generation)
      .get(record.checksum);
  if (kind < 1 || kind > 3 || stored_sum(entry) != (sum_of(entry) ^ tag)) return std::nullopt;
  record.kind = static_cast<RecordKind>(kind);
  return record;
}

std::uint32_t log_records_max(std::uint32_t slots) {
  // Room for every slot to be reused about three times between two rewritings; whole 4 KiB.
  const std::uint64_t wanted = std::max<std::uint64_t>(kRecordsMin, std::uint64_t{slots} * 4);
  const std::uint64_t entries = (wanted + 1 + 63) / 64 * 64;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(entries - 1, 0xFFFFFFFEU));
}

std::uint64_t log_bytes(std::uint32_t records_max) { return offset_of(records_max); }

Result<LogNews> read_log(const std::string& path, LogCursor& cursor, std::uint64_t bytes_max) {
  const UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return failure(file_error("open", path, errno));
  LogEntry head;
  const auto head_bytes = pread_some(fd.get(), head.data(), head.size(), 0, path);
  if (!head_bytes) return failure(head_bytes.error());
  const auto header = *head_bytes == head.size() ? decode_header(head) : std::nullopt;
  if (!header) return failure(Code::kCorrupt, path + " has no valid header; log ignored");

  LogNews news;
  news.header = *header;
  const std::uint64_t tag = log_tag(*header);
  if (cursor.tag != tag) {
    cursor = {tag, 0, 0};
    news.restarted = true;
  }
  std::uint64_t piece_bytes = kFirstReadBytes;
  std::vector<std::byte> piece;
  while (cursor.position < header->records_max) {
    const std::uint64_t left = offset_of(header->records_max) - offset_of(cursor.position);
    piece.resize(std::min(piece_bytes, left));
    const auto got =
        pread_some(fd.get(), piece.data(), piece.size(), offset_of(cursor.position), path);
    if (!got) return failure(got.error());
    news.bytes_read += *got;
    const auto entries = *got / kLogRecordBytes;
    std::size_t consumed = 0;
    std::uint32_t skipped = 0;
    bool garbage = false;
    for (std::size_t i = 0; i < entries; ++i) {
      const LogEntry entry = entry_at(piece, i);
      const auto record = decode_record(entry, tag);
      const bool good = record && record->seq > cursor.last_seq &&
                        record->segment == header->segment && record->slot < header->slots &&
                        record->size_bytes <= header->slot_bytes;
      if (!good) {
        garbage = garbage || !all_zero(entry);
        ++skipped;
        continue;
      }
      news.damaged += skipped;
      skipped = 0;
      garbage = false;
      cursor.last_seq = record->seq;
      news.records.push_back(*record);
      consumed = i + 1;
    }
    garbage = garbage || *got % kLogRecordBytes != 0;
    cursor.position += static_cast<std::uint32_t>(consumed);
    const bool at_end = consumed < entries || *got < piece.size();
    if (at_end && garbage && piece_bytes < kReadBytes && *got == piece.size()) {
      // A damaged run may be longer than this piece: look further before calling it the tail.
      piece_bytes = kReadBytes;
      if (piece.size() < left) continue;
    }
    if (at_end) {
      news.torn = garbage;
      break;
    }
    piece_bytes = kReadBytes;
    if (news.bytes_read >= bytes_max) {
      news.more = cursor.position < header->records_max;
      break;
    }
  }
  return news;
}

Result<IndexLog> IndexLog::create(const std::string& path, const LogHeader& header,
                                  std::span<const IndexRecord> records) {
  const std::string fresh = path + ".new";
  IndexLog log;
  log.path_ = path;
  log.header_ = header;
  log.tag_ = log_tag(header);
  log.fd_ = UniqueFd(::open(fresh.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!log.fd_.is_open()) return failure(file_error("make", fresh, errno));
  const auto fail = [&](Status status) {
    ::unlink(fresh.c_str());
    return failure(std::move(status));
  };
  const auto allocated = preallocate(log.fd_.get(), log_bytes(header.records_max), fresh);
  if (!allocated) return fail(allocated.error());
  std::vector<std::byte> bytes((records.size() + 1) * kLogRecordBytes);
  const LogEntry head = encode_header(header);
  std::memcpy(bytes.data(), head.data(), head.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    const LogEntry entry = encode_record(records[i], log.tag_);
    std::memcpy(bytes.data() + (i + 1) * kLogRecordBytes, entry.data(), entry.size());
  }
  if (auto status = pwrite_all(log.fd_.get(), bytes.data(), bytes.size(), 0, fresh);
      !status.is_ok()) {
    return fail(status);
  }
  if (::rename(fresh.c_str(), path.c_str()) != 0) return fail(file_error("rename", fresh, errno));
  log.position_ = static_cast<std::uint32_t>(records.size());
  log.dirty_ = true;
  return log;
}

Result<IndexLog> IndexLog::resume(const std::string& path, const LogHeader& header,
                                  std::uint32_t position) {
  IndexLog log;
  log.path_ = path;
  log.header_ = header;
  log.tag_ = log_tag(header);
  log.position_ = position;
  log.fd_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!log.fd_.is_open()) return failure(file_error("open", path, errno));
  const auto allocated = preallocate(log.fd_.get(), log_bytes(header.records_max), path);
  if (!allocated) return failure(allocated.error());
  return log;
}

Status IndexLog::append(const IndexRecord& record) {
  if (full()) return {Code::kNoSpace, path_ + " is at its bound"};
  const LogEntry entry = encode_record(record, tag_);
  if (auto status = pwrite_all(fd_.get(), entry.data(), entry.size(), offset_of(position_), path_);
      !status.is_ok()) {
    return status;
  }
  ++position_;
  dirty_ = true;
  return Status::ok();
}

Result<UniqueFd> IndexLog::take_unflushed() {
  if (!dirty_) return UniqueFd();
  UniqueFd fd(::fcntl(fd_.get(), F_DUPFD_CLOEXEC, 0));
  if (!fd.is_open()) return failure(file_error("open again", path_, errno));
  dirty_ = false;
  return fd;
}

}  // namespace kvstream
