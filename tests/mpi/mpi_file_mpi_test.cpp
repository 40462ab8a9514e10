// MpiFile: right bytes, and nothing of them in the page cache.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "mpi/segment_files.hpp"
#include "mpi/shared_directory.hpp"
#include "mpi_tiers/mpi_file.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kMib = 1ULL << 20U;

/// The most bytes of the file that are seen in the page cache within 50 ms: read-ahead arrives
/// late.
std::int64_t most_cached_bytes(const std::string& path, std::uint64_t size_bytes) {
  std::int64_t most = 0;
  const Nanos deadline = SteadyClock::instance().now() + 50 * kMillisecond;
  do {
    most = std::max(most, cached_bytes(path, 0, size_bytes));
  } while (SteadyClock::instance().now() < deadline);
  return most;
}

class MpiFileTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(directory_.ok());
    path_ = directory_.path() + "/r" + std::to_string(directory_.rank());
  }
  /// A file of real bytes that is not in the page cache.
  void make_file(std::uint64_t size_bytes) {
    const auto bytes = bytes_of(99, size_bytes);
    const int fd = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
  std::shared_ptr<MpiFile> open(Access access) {
    auto file = MpiFile::open(directory_.session(), path_, access);
    if (!file) {
      ADD_FAILURE() << file.error().to_string();
      return nullptr;
    }
    return *file;
  }

  SharedDirectory directory_;
  std::string path_;
};

TEST_F(MpiFileTest, ThreadsReadBackWhatTheyWrote) {
  make_file(8 * kMib);
  auto file = open(Access::kReadWrite);
  ASSERT_TRUE(file);
  std::vector<int> wrong(4, 1);
  std::vector<std::thread> threads;
  for (std::uint64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<std::byte> back(300'000);
      bool same = true;
      for (std::uint64_t i = 0; i < 4; ++i) {
        const std::uint64_t offset = t * 2 * kMib + i * 512 * 1024;
        const auto bytes = bytes_of(t * 16 + i, back.size());
        same = same && file->write(offset, {bytes.data(), bytes.size()}).is_ok();
        same = same && file->read(offset, {back.data(), back.size()}).is_ok() && back == bytes;
      }
      wrong[t] = same ? 0 : 1;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(MpiFileTest, AShortReadIsAnError) {
  make_file(kMib);
  auto file = open(Access::kRead);
  ASSERT_TRUE(file);
  std::vector<std::byte> into(8192);
  const Status status = file->read(kMib - 4096, {into.data(), into.size()});
  EXPECT_EQ(status.code(), Code::kIoError);
  EXPECT_NE(status.message().find("short read 4096 B"), std::string::npos) << status.message();
}

TEST_F(MpiFileTest, AMissingFileIsNotFound) {
  auto file = MpiFile::open(directory_.session(), path_ + ".none", Access::kRead);
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code(), Code::kNotFound);
}

TEST_F(MpiFileTest, AFileThatWasDeletedIsStillRead) {
  make_file(kMib);
  auto file = open(Access::kRead);
  ASSERT_TRUE(file);
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  std::vector<std::byte> into(4096);
  EXPECT_TRUE(file->read(8192, {into.data(), into.size()}).is_ok());
}

TEST_F(MpiFileTest, WhatWasWrittenIsNotInThePageCacheAfterwards) {
  const std::string unseen = page_cache_unseen(directory_.path());
  if (!unseen.empty()) GTEST_SKIP() << unseen;
  make_file(8 * kMib);
  auto file = open(Access::kReadWrite);
  ASSERT_TRUE(file);
  const auto bytes = bytes_of(5, 2 * kMib);
  ASSERT_TRUE(file->write(4 * kMib, {bytes.data(), bytes.size()}).is_ok());
  EXPECT_EQ(cached_bytes(path_, 0, 8 * kMib), 0);
}

TEST_F(MpiFileTest, ReadAheadIsOffAndASecondReadIsNotServedFromThePageCache) {
  const std::string unseen = page_cache_unseen(directory_.path());
  if (!unseen.empty()) GTEST_SKIP() << unseen;
  make_file(16 * kMib);
  auto file = open(Access::kRead);
  ASSERT_TRUE(file);
  EXPECT_TRUE(mpi_io_facts().descriptors_found);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cached_bytes(path_, 0, 16 * kMib), 0) << "before read " << i;
    // Two neighbours in turn look like a sequential reader, to whom the kernel reads ahead.
    std::vector<std::byte> into(2 * kMib);
    ASSERT_TRUE(file->read(6 * kMib, {into.data(), into.size()}).is_ok());
    ASSERT_TRUE(file->read(8 * kMib, {into.data(), into.size()}).is_ok());
    EXPECT_EQ(most_cached_bytes(path_, 16 * kMib), static_cast<std::int64_t>(4 * kMib));
    file->forget(6 * kMib, into.size());
    EXPECT_EQ(cached_bytes(path_, 0, 16 * kMib), static_cast<std::int64_t>(2 * kMib));
    file->forget(8 * kMib, into.size());
  }
  EXPECT_EQ(cached_bytes(path_, 0, 16 * kMib), 0);
}

TEST_F(MpiFileTest, SaysWhichComponentMovesTheBytes) {
  make_file(kMib);
  auto file = open(Access::kRead);
  ASSERT_TRUE(file);
  const char* asked = std::getenv("OMPI_MCA_io");
  if (asked == nullptr) GTEST_SKIP() << "OMPI_MCA_io is not set";
  EXPECT_EQ(mpi_io_facts().component, asked);
}

}  // namespace
}  // namespace kvstream
