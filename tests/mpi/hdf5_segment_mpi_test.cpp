// Segments as HDF5 files.
#include <gtest/gtest.h>
#include <hdf5.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>

#include "mpi/segment_files.hpp"
#include "mpi/shared_directory.hpp"
#include "mpi_tiers/hdf5_segment.hpp"
#include "mpi_tiers/mpi_file.hpp"

namespace kvstream {
namespace {

class Hdf5Segment : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(directory_.ok());
    format_ = std::make_unique<Hdf5SegmentFormat>(directory_.session());
  }
  SegmentSpec spec(std::uint32_t slots, std::uint32_t slot_bytes) const {
    SegmentSpec made;
    made.path = directory_.path() + "/r" + std::to_string(directory_.rank()) + ".h5";
    made.slots = slots;
    made.slot_bytes = slot_bytes;
    made.namespace_fingerprint = 0x1234;
    made.writer = "job0-r" + std::to_string(directory_.rank());
    return made;
  }

  SharedDirectory directory_;
  std::unique_ptr<Hdf5SegmentFormat> format_;
};

TEST_F(Hdf5Segment, IsFullyAllocatedAndAlignedWhenItIsMade) {
  const SegmentSpec wanted = spec(24, 1U << 20U);
  auto made = format_->create(wanted);
  ASSERT_TRUE(made) << made.error().to_string();
  EXPECT_EQ(made->data_offset_bytes % (1U << 20U), 0U);
  EXPECT_TRUE(made->preallocated);
  struct stat info {};
  ASSERT_EQ(::stat(wanted.path.c_str(), &info), 0);
  EXPECT_EQ(static_cast<std::uint64_t>(info.st_size), made->file_bytes);
  EXPECT_GE(static_cast<std::uint64_t>(info.st_blocks) * 512, made->file_bytes);
  EXPECT_GE(made->file_bytes, made->data_offset_bytes + (24ULL << 20U));
}

TEST_F(Hdf5Segment, NeverExceedsTheBoundThatTheCapIsCheckedAgainst) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 24; ++i) {
    const auto slot_bytes = static_cast<std::uint32_t>(4096 * (1 + random() % 512));
    const auto slots = static_cast<std::uint32_t>(1 + random() % (i < 12 ? 2 : 64));
    SegmentSpec wanted = spec(slots, slot_bytes);
    wanted.writer = std::string(random() % 128, 'w');
    SCOPED_TRACE(std::to_string(slots) + " slots of " + std::to_string(slot_bytes) + " B");
    auto made = format_->create(wanted);
    ASSERT_TRUE(made) << made.error().to_string();
    EXPECT_LE(made->file_bytes, format_->file_bytes_max(slots, slot_bytes));
    EXPECT_EQ(made->data_offset_bytes % 4096, 0U);
    EXPECT_EQ(std::remove(wanted.path.c_str()), 0);
  }
}

TEST_F(Hdf5Segment, Hdf5ReadsWhatWasWrittenBehindItsBack) {
  const SegmentSpec wanted = spec(4, 8192);
  auto made = format_->create(wanted);
  ASSERT_TRUE(made) << made.error().to_string();
  const auto bytes = bytes_of(directory_.rank() + 1, 8192);
  {
    auto file = MpiFile::open(directory_.session(), wanted.path, Access::kReadWrite);
    ASSERT_TRUE(file) << file.error().to_string();
    const std::uint64_t slot2 = made->data_offset_bytes + 2 * 8192;
    const Status written = (*file)->write(slot2, {bytes.data(), bytes.size()});
    ASSERT_TRUE(written.is_ok()) << written.to_string();
  }
  const std::lock_guard lock(mpi_files_mutex());
  const hid_t file = H5Fopen(wanted.path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hid_t slots = H5Dopen2(file, "slots", H5P_DEFAULT);
  ASSERT_GE(slots, 0);
  std::vector<std::byte> all(4 * 8192);
  EXPECT_GE(H5Dread(slots, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, all.data()), 0);
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), all.begin() + 2 * 8192));
  const hid_t attribute = H5Aopen(file, "data_offset", H5P_DEFAULT);
  std::uint64_t offset = 0;
  EXPECT_GE(H5Aread(attribute, H5T_NATIVE_UINT64, &offset), 0);
  EXPECT_EQ(offset, made->data_offset_bytes);
  H5Aclose(attribute);
  H5Dclose(slots);
  H5Fclose(file);
}

TEST_F(Hdf5Segment, H5dumpOpensIt) {
  if (std::system("command -v h5dump >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "h5dump is not installed (Debian: hdf5-tools)";
  }
  const SegmentSpec wanted = spec(4, 8192);
  ASSERT_TRUE(format_->create(wanted));
  const std::string text_path = wanted.path + ".txt";
  const std::string command =
      "h5dump -H '" + wanted.path + "' >'" + text_path + "' 2>&1 </dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0);
  std::ifstream in(text_path);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  EXPECT_NE(text.find("DATASET \"slots\""), std::string::npos) << text;
  EXPECT_NE(text.find("( 4, 8192 )"), std::string::npos) << text;
  EXPECT_NE(text.find("\"namespace_fingerprint\""), std::string::npos) << text;
}

TEST_F(Hdf5Segment, AFileThatExistsIsRefusedAndLeftAlone) {
  const SegmentSpec wanted = spec(4, 8192);
  std::ofstream(wanted.path) << "somebody else's";
  auto made = format_->create(wanted);
  ASSERT_FALSE(made);
  std::string text;
  std::getline(std::ifstream(wanted.path), text);
  EXPECT_EQ(text, "somebody else's");
}

TEST_F(Hdf5Segment, AFullFileSystemGivesNoSpaceAndLeavesNoFile) {
  const std::string mount = directory_.path() + "/full" + std::to_string(directory_.rank());
  ASSERT_EQ(::mkdir(mount.c_str(), 0700), 0);
  if (::mount("tmpfs", mount.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "mounting a small file system is not allowed here";
  }
  SegmentSpec wanted = spec(64, 65536);
  wanted.path = mount + "/seg.h5";
  auto made = format_->create(wanted);
  EXPECT_FALSE(made);
  if (!made) {
    EXPECT_EQ(made.error().code(), Code::kNoSpace) << made.error().to_string();
  }
  struct stat info {};
  EXPECT_NE(::stat(wanted.path.c_str(), &info), 0);
  EXPECT_EQ(::umount(mount.c_str()), 0);
}

}  // namespace
}  // namespace kvstream
