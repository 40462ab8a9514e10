// Stores over temporary directories, driven by a clock that stands still.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/checksum.hpp"
#include "kvstream/clock.hpp"
#include "tiers/slot_store.hpp"
#include "tiers/slot_store_posix.hpp"
#include "tiers/slot_store_writers.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream::test {

inline BlockKey numbered_key(std::uint64_t number) {
  BlockKey key;
  std::memcpy(key.bytes.data(), &number, sizeof number);
  key.bytes[15] = 0x5A;
  return key;
}

class SlotStoreFixture : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlock = 8192;
  static constexpr std::uint64_t kCap = 4ULL << 20U;
  using Kind = CatalogChange::Kind;

  SlotStoreOptions options() const {
    SlotStoreOptions options;
    options.tier_name = "t";
    options.root = root_;
    options.cap_bytes = kCap;
    options.block_bytes_max = kBlock;
    options.namespace_fingerprint = 0xF00D;
    options.clock = &clock_;
    options.format = std::make_shared<PlainFormat>();
    options.opener = std::make_shared<PosixOpener>(Caching::kGoverned);
    options.lock_wait_ns = 2 * kSecond;
    return options;
  }
  std::unique_ptr<SlotStore> open(const SlotStoreOptions& options) {
    auto store = SlotStore::open(options);
    EXPECT_TRUE(store) << store.error().to_string();
    return store ? std::move(*store) : nullptr;
  }
  std::unique_ptr<SlotStore> open() { return open(options()); }

  /// A slot, with the chores that it takes; at most 20 of them.
  static Result<SlotRef> reserve(SlotStore& store) {
    auto slot = store.reserve(kBlock);
    for (int i = 0; i < 20 && !slot && slot.error().code() == Code::kOverloaded; ++i) {
      EXPECT_TRUE(store.chore().is_ok());
      slot = store.reserve(kBlock);
    }
    return slot;
  }
  static std::vector<std::byte> payload(std::uint64_t number) {
    std::vector<std::byte> bytes(kBlock);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<std::byte>((number * 31 + i * (number % 13 + 1)) & 0xFFU);
    }
    return bytes;
  }
  static WriteOp write_op(std::uint64_t number, SlotRef at) {
    WriteOp op;
    op.key = numbered_key(number);
    op.at = at;
    op.size_bytes = kBlock;
    op.checksum = checksum(payload(number));
    return op;
  }
  static void write_bytes(const SlotAddress& address, std::uint64_t number) {
    const auto bytes = payload(number);
    const int fd = static_cast<const PosixHandle&>(*address.handle).fd();
    EXPECT_TRUE(pwrite_all(fd, bytes.data(), bytes.size(), address.offset_bytes, "t").is_ok());
  }
  static SlotRef write_at(SlotStore& store, std::uint64_t number, SlotRef at) {
    const auto address = store.prepare_write(at);
    EXPECT_TRUE(address) << address.error().message();
    if (!address) return {};
    write_bytes(*address, number);
    EXPECT_TRUE(store.commit(write_op(number, at)).is_ok());
    return at;
  }
  static SlotRef write(SlotStore& store, std::uint64_t number) {
    const auto at = reserve(store);
    EXPECT_TRUE(at) << at.error().to_string();
    return at ? write_at(store, number, *at) : SlotRef{};
  }
  static bool holds(SlotStore& store, SlotRef at, std::uint64_t number) {
    const auto address = store.resolve(at);
    if (!address) return false;
    std::vector<std::byte> bytes(kBlock);
    const auto got = pread_some(static_cast<const PosixHandle&>(*address->handle).fd(),
                                bytes.data(), bytes.size(), address->offset_bytes, "t");
    return got && *got == kBlock && bytes == payload(number);
  }
  static std::vector<CatalogChange> news(SlotStore& store) {
    std::vector<CatalogChange> all;
    std::array<CatalogChange, 16> some;
    while (const std::size_t count = store.changes(some)) {
      all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
    }
    return all;
  }
  /// One chore, a second later.
  void tick(SlotStore& store) {
    clock_.advance(kSecond);
    EXPECT_TRUE(store.chore().is_ok());
  }
  std::uint64_t bytes_on_disk() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root_)) {
      const auto name = entry.path().filename().string();
      if (entry.is_regular_file() && name.find('.') != std::string::npos &&
          !name.starts_with("SHARERS")) {
        bytes += entry.file_size();
      }
    }
    return bytes;
  }
  /// What a crash leaves: the files as they are now, under another root.
  std::string crash_copy() {
    const std::string copy = directory_.path() + "/crash" + std::to_string(copies_++);
    std::filesystem::copy(root_, copy, std::filesystem::copy_options::recursive);
    return copy;
  }

  FakeClock clock_;
  TempDirectory directory_;
  std::string root_ = directory_.path() + "/root";
  int copies_ = 0;
};

}  // namespace kvstream::test
