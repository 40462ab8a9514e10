// What a segment file looks like around its slots.
#pragma once

#include <cstdint>
#include <string>

#include "kvstream/status.hpp"

namespace kvstream {

/// Written into index logs: names the kind of segment file, hence its extension.
enum class FormatId : std::uint16_t { kPlain = 0, kHdf5 = 1 };

/// ".seg" or ".h5".
const char* segment_extension(FormatId id) noexcept;

/// A segment that is to be made.
struct SegmentSpec {
  std::string path;
  std::uint32_t slots = 0;
  std::uint32_t slot_bytes = 0;  ///< a multiple of 4 KiB
  std::uint64_t namespace_fingerprint = 0;
  std::string writer;        ///< for people; the index log is what readers believe
  std::uint32_t number = 0;  ///< unique per writer
};

/// A segment that was made.
struct SegmentMade {
  std::uint64_t data_offset_bytes = 0;  ///< of slot 0; a multiple of 4 KiB
  std::uint64_t file_bytes = 0;         ///< apparent size; never grows later
  bool preallocated = false;            ///< false: the file system cannot, ENOSPC may come later
};

/// Makes segment files whose slots lie at `data_offset_bytes + slot * slot_bytes`; all else (logs,
/// recovery, cap) is the SlotStore's. Stateless or locked inside: called by one thread a store.
class SegmentFormat {
 public:
  virtual ~SegmentFormat() = default;

  virtual FormatId id() const = 0;
  /// Upper bound of file_bytes, to be checked against the cap before anything is made.
  virtual std::uint64_t file_bytes_max(std::uint32_t slots, std::uint32_t slot_bytes) const = 0;
  /// Makes the file, which must not exist, at its full size, allocated where the file system can.
  /// After an error no file is left; kNoSpace when the file system is full.
  virtual Result<SegmentMade> create(const SegmentSpec& spec) const = 0;
};

/// A superblock of 4 KiB, then the slots.
class PlainFormat final : public SegmentFormat {
 public:
  FormatId id() const override { return FormatId::kPlain; }
  std::uint64_t file_bytes_max(std::uint32_t slots, std::uint32_t slot_bytes) const override;
  Result<SegmentMade> create(const SegmentSpec& spec) const override;
};

/// fallocate(2) of the first `size_bytes` of an open file: true when allocated, false when the file
/// system cannot (the file then has that apparent size, sparse). On kNoSpace the caller unlinks:
/// ext4 keeps what it could allocate.
Result<bool> preallocate(int fd, std::uint64_t size_bytes, const std::string& path);

}  // namespace kvstream
