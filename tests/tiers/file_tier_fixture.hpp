// Tiers over slot stores in a temporary directory, and blocks with known bytes.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/checksum.hpp"
#include "kvstream/tier.hpp"
#include "tiers/nvme_tier.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream::test {

class AlignedBlock {
 public:
  explicit AlignedBlock(std::size_t size_bytes)
      : size_bytes_((size_bytes + 4095) / 4096 * 4096),
        data_(static_cast<std::byte*>(std::aligned_alloc(4096, size_bytes_)), &std::free) {
    std::memset(data_.get(), 0xEE, size_bytes_);
  }
  std::byte* data() const { return data_.get(); }
  std::size_t size_bytes() const { return size_bytes_; }

 private:
  std::size_t size_bytes_;
  std::unique_ptr<std::byte, decltype(&std::free)> data_;
};

class FileTierFixture : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlock = 64 * 1024;

  TierSpec spec() const {
    TierSpec spec;
    spec.name = "t0";
    spec.path = directory_.path() + "/root";
    spec.cap_bytes = 16ULL << 20U;
    return spec;
  }
  static TierContext context(std::uint32_t rank = 0, std::uint32_t ranks = 1) {
    TierContext context;
    context.rank = context.local_rank = rank;
    context.ranks = context.local_ranks = ranks;
    context.namespace_fingerprint = 0xF00D;
    context.block_bytes_max = kBlock;
    context.clock = &SteadyClock::instance();
    return context;
  }
  static BlockKey key(std::uint64_t number) {
    BlockKey key;
    std::memcpy(key.bytes.data(), &number, sizeof number);
    return key;
  }
  static void fill(const AlignedBlock& block, std::uint64_t number, std::uint32_t size_bytes) {
    for (std::uint32_t i = 0; i < size_bytes; ++i) {
      block.data()[i] = static_cast<std::byte>((number * 131 + i * (number % 17 + 1)) & 0xFFU);
    }
  }
  static WriteOp write_op(std::uint64_t number, SlotRef at, const AlignedBlock& from,
                          std::uint32_t size_bytes = kBlock) {
    WriteOp op;
    op.id = number;
    op.key = key(number);
    op.at = at;
    op.size_bytes = size_bytes;
    op.checksum = checksum({from.data(), size_bytes});
    op.from = from.data();
    return op;
  }
  template <class AnyKindOfTier>
  static SlotRef reserve(AnyKindOfTier& tier) {
    auto slot = tier.reserve(kBlock);
    for (int i = 0; i < 20 && !slot && slot.error().code() == Code::kOverloaded; ++i) {
      EXPECT_TRUE(tier.chore().is_ok());
      slot = tier.reserve(kBlock);
    }
    EXPECT_TRUE(slot) << slot.error().to_string();
    return slot ? *slot : SlotRef{};
  }
  template <class AnyKindOfTier>
  static std::vector<CatalogChange> news(AnyKindOfTier& tier) {
    std::vector<CatalogChange> all(1000);
    all.resize(tier.changes(all));
    return all;
  }
  std::vector<std::string> segments() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(spec().path)) {
      const auto extension = entry.path().extension();
      if (extension == ".seg" || extension == ".h5") found.push_back(entry.path().string());
    }
    return found;
  }
  /// Bytes of all segments that lie in the page cache.
  std::uint64_t cached_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& path : segments()) {
      const auto size = std::filesystem::file_size(path);
      const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      void* map = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
      std::vector<unsigned char> resident((size + 4095) / 4096);
      EXPECT_EQ(::mincore(map, size, resident.data()), 0);
      for (const unsigned char page : resident) bytes += (page & 1U) != 0 ? 4096 : 0;
      ::munmap(map, size);
      ::close(fd);
    }
    return bytes;
  }

  TempDirectory directory_;
};

/// Hands out handles on which the system refuses to write.
class ReadOnlyOpener final : public FileOpener {
 public:
  Result<std::shared_ptr<SegmentHandle>> open(const std::string& path, Access) override {
    return PosixOpener(Caching::kGoverned).open(path, Access::kRead);
  }
};

}  // namespace kvstream::test
