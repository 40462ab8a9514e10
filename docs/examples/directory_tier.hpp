// A tier in one file: a directory in which each block is a file. docs/add-a-tier.md walks through.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/logging.hpp"
#include "kvstream/tier.hpp"

namespace kvstream {

/// Owned by the engine's adapter, called as BlockingTier says. Bounded by cap / block_bytes_max
/// slots for this rank. A file's name has all that recovery needs: slot, generation, key, size and
/// checksum. Files of freed slots are unlinked by chore(), never on the progress thread.
class DirectoryTier final : public BlockingTier {
 public:
  static Result<std::unique_ptr<DirectoryTier>> open(const TierSpec& spec,
                                                     const TierContext& context) {
    const auto slots = spec.cap_bytes / context.local_ranks / context.block_bytes_max;
    if (slots == 0 || slots > UINT32_MAX) {
      return failure(
          Code::kInvalidArgument,
          fmt::format("a cap of {} B is no block of {} B for each of {} ranks; give "
                      "tier {} a larger one",
                      spec.cap_bytes, context.block_bytes_max, context.local_ranks, spec.name));
    }
    const std::string directory = fmt::format("{}/rank{}", spec.path, context.local_rank);
    std::error_code error;
    std::filesystem::create_directories(directory, error);
    if (error) {
      return failure(Code::kIoError,
                     fmt::format("failed to make directory {} ({}); name one that can be written",
                                 directory, error.message()));
    }
    std::unique_ptr<DirectoryTier> tier(new DirectoryTier(
        spec, directory, static_cast<std::uint32_t>(slots), context.block_bytes_max));
    if (auto status = tier->recover(); !status.is_ok()) return failure(status);
    return tier;
  }

  ~DirectoryTier() override { unlink_freed(SIZE_MAX); }

  const TierTraits& traits() const override { return traits_; }

  Result<SlotRef> reserve(std::uint32_t size_bytes) override {
    const std::lock_guard lock(mutex_);
    if (size_bytes > slot_bytes_) {
      return failure(Code::kInvalidArgument,
                     fmt::format("a block of {} B is larger than the {} B of a slot of tier {}",
                                 size_bytes, slot_bytes_, traits_.name));
    }
    if (free_.empty()) {
      return failure(Code::kNoSpace, fmt::format("tier {} is full", traits_.name));
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    slots_[slot].taken = true;
    return SlotRef{0, slot, ++slots_[slot].generation};
  }

  void free(SlotRef at) override {
    const std::lock_guard lock(mutex_);
    if (!is_taken(at)) return;
    Slot& slot = slots_[at.slot];
    if (!slot.file.empty()) freed_files_.push_back(std::exchange(slot.file, {}));
    slot.taken = false;
    free_.push_back(at.slot);
  }

  Result<std::uint32_t> read(const ReadOp& op) override {
    const std::string file = file_of(op.at);
    if (file.empty()) {
      return failure(Code::kNotFound,
                     fmt::format("slot {} of tier {} has no such block", op.at.slot, traits_.name));
    }
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return failed("open", file);
    std::size_t left = op.size_bytes;
    bool good = true;
    for (const Span& span : op.into) {
      std::byte* into = span.data;
      for (std::size_t part = std::min(left, span.size_bytes); part > 0 && good;) {
        const ssize_t got = ::read(fd, into, part);
        if (got < 0 && errno == EINTR) continue;
        if (got == 0) errno = ENODATA;
        good = got > 0;
        if (!good) break;
        into += got;
        part -= static_cast<std::size_t>(got);
        left -= static_cast<std::size_t>(got);
      }
    }
    const int error = errno;
    ::close(fd);
    errno = error;
    if (left > 0) return failed("read", file);
    return op.size_bytes;
  }

  Status write(const WriteOp& op) override {
    const std::string file =
        fmt::format("{}/{}-{}-{}-{}-{:016x}.block", directory_, op.at.slot, op.at.generation,
                    op.key.to_hex(), op.size_bytes, op.checksum);
    // Under another name until it is whole: recovery never sees half a block.
    const std::string partial = file + ".partial";
    const int fd = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return failed("make", partial).value();
    std::size_t done = 0;
    while (done < op.size_bytes) {
      const ssize_t put = ::write(fd, op.from + done, op.size_bytes - done);
      if (put < 0 && errno == EINTR) continue;
      if (put <= 0) break;
      done += static_cast<std::size_t>(put);
    }
    const bool closed = ::close(fd) == 0;
    if (done < op.size_bytes || !closed || std::rename(partial.c_str(), file.c_str()) != 0) {
      const auto error = failed("write", file);
      ::unlink(partial.c_str());
      return error.value();
    }
    const std::lock_guard lock(mutex_);
    if (is_taken(op.at)) {
      slots_[op.at.slot].file = file;
    } else {
      freed_files_.push_back(file);
    }
    return {};
  }

  std::size_t changes(std::span<CatalogChange> out) override {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (; count < out.size() && !found_.empty(); found_.pop_front()) out[count++] = found_.front();
    return count;
  }

  void recheck(const CatalogChange&) override {}

  Status chore() override {
    unlink_freed(64);
    return {};
  }

  TierReport report() const override {
    const std::lock_guard lock(mutex_);
    TierReport report;
    report.capacity_bytes = slots_.size() * slot_bytes_;
    report.free_bytes = free_.size() * slot_bytes_;
    report.used_bytes = report.capacity_bytes - report.free_bytes;
    report.errors = errors_;
    report.mode = "a file per block, buffered";
    return report;
  }

 private:
  struct Slot {
    std::uint64_t generation = 0;
    bool taken = false;
    std::string file;  ///< empty until written
  };

  DirectoryTier(const TierSpec& spec, std::string directory, std::uint32_t slots,
                std::uint32_t slot_bytes)
      : directory_(std::move(directory)), slot_bytes_(slot_bytes), slots_(slots) {
    traits_.kind = "directory";
    traits_.name = spec.name;
    traits_.device_id = spec.path;
    traits_.in_flight_max = 64;
    traits_.io_threads = 4;
    traits_.direct_landing = true;
    traits_.persistent = true;
  }

  /// Each name that is whole and fits is a block; of two in one slot the newer (the process ended
  /// before chore() came to the other). All else is left alone, but for our own half-written files.
  Status recover() {
    std::map<std::uint32_t, CatalogChange> newest;
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
      const std::string file = entry.path();
      if (file.ends_with(".block.partial")) ::unlink(file.c_str());
      CatalogChange found;
      found.own = true;
      if (!parse(entry.path().filename(), found)) continue;
      Slot& slot = slots_[found.at.slot];
      const bool newer = found.at.generation > slot.generation;
      if (slot.taken) freed_files_.push_back(newer ? slot.file : file);
      if (!newer) continue;
      slot = {found.at.generation, true, file};
      newest[found.at.slot] = found;
    }
    if (error) {
      return {Code::kIoError, fmt::format("failed to list {} ({})", directory_, error.message())};
    }
    for (const auto& [slot, found] : newest) found_.push_back(found);
    for (std::uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_[slot].taken) free_.push_back(slot);
    }
    return {};
  }

  bool parse(const std::string& name, CatalogChange& found) const {
    std::array<char, 33> hex{};
    unsigned long long generation = 0, checksum = 0;
    int length = 0;
    const int fields =
        std::sscanf(name.c_str(), "%u-%llu-%32[0-9a-f]-%u-%16llx.block%n", &found.at.slot,
                    &generation, hex.data(), &found.size_bytes, &checksum, &length);
    if (fields != 5 || length != static_cast<int>(name.size()) || std::strlen(hex.data()) != 32 ||
        found.at.slot >= slots_.size() || found.size_bytes > slot_bytes_) {
      return false;
    }
    for (std::size_t i = 0; i < found.key.bytes.size(); ++i) {
      unsigned byte = 0;
      std::sscanf(hex.data() + 2 * i, "%2x", &byte);
      found.key.bytes[i] = static_cast<std::uint8_t>(byte);
    }
    found.at.generation = generation;
    found.checksum = checksum;
    return true;
  }

  bool is_taken(SlotRef at) const {
    return at.segment == 0 && at.slot < slots_.size() && slots_[at.slot].taken &&
           slots_[at.slot].generation == at.generation;
  }

  std::string file_of(SlotRef at) const {
    const std::lock_guard lock(mutex_);
    return is_taken(at) ? slots_[at.slot].file : std::string();
  }

  void unlink_freed(std::size_t count_max) {
    std::vector<std::string> files;
    {
      const std::lock_guard lock(mutex_);
      for (; files.size() < count_max && !freed_files_.empty(); freed_files_.pop_front()) {
        files.push_back(std::move(freed_files_.front()));
      }
    }
    for (const std::string& file : files) ::unlink(file.c_str());
  }

  /// Whoever first decides that something failed logs it; the code is for the caller.
  tl::unexpected<Status> failed(const char* verb, const std::string& file) {
    Status status(Code::kIoError,
                  fmt::format("failed to {} {} ({})", verb, file, std::strerror(errno)));
    logger("tiers").warn("{}", status.message());
    const std::lock_guard lock(mutex_);
    ++errors_;
    return failure(std::move(status));
  }

  TierTraits traits_;
  const std::string directory_;
  const std::uint32_t slot_bytes_;
  mutable std::mutex mutex_;  ///< guards what follows
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::deque<std::string> freed_files_;  ///< at most one a write
  std::deque<CatalogChange> found_;
  std::uint64_t errors_ = 0;
};

inline TierFactory directory_tier_factory() {
  return [](const TierSpec& spec, const TierContext& context) -> Result<AnyTier> {
    auto tier = DirectoryTier::open(spec, context);
    if (!tier) return failure(tier.error());
    return AnyTier(std::unique_ptr<BlockingTier>(std::move(*tier)));
  };
}

}  // namespace kvstream
