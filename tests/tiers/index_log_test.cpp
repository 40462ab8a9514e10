#include "tiers/index_log.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tiers/temp_directory.hpp"

namespace kvstream::test {
namespace {

constexpr std::uint32_t kSlots = 16;

LogHeader header_of(std::uint32_t epoch) {
  return {FormatId::kPlain, 3, 0xABCD, 8192, kSlots, 4096, epoch, log_records_max(kSlots), 77};
}

IndexRecord put(std::uint64_t seq, std::uint32_t slot) {
  IndexRecord record;
  record.seq = seq;
  record.key.bytes.fill(static_cast<std::uint8_t>(seq));
  record.segment = 3;
  record.slot = slot;
  record.size_bytes = 5000;
  record.generation = seq;
  record.checksum = seq * 17;
  return record;
}

void flip_bit(const std::string& path, std::uint64_t bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(bit / 8));
  char byte = 0;
  file.get(byte);
  file.seekp(static_cast<std::streamoff>(bit / 8));
  file.put(static_cast<char>(byte ^ (1 << (bit % 8))));
}

class IndexLogTest : public testing::Test {
 protected:
  IndexLog make(std::uint32_t epoch, std::uint32_t records) {
    auto log = IndexLog::create(path_, header_of(epoch), {});
    EXPECT_TRUE(log) << log.error().message();
    for (std::uint32_t i = 0; i < records; ++i) {
      EXPECT_TRUE(log->append(put(i + 1, i % kSlots)).is_ok());
    }
    return std::move(*log);
  }
  LogNews read(LogCursor& cursor, std::uint64_t bytes_max = UINT64_MAX) {
    auto news = read_log(path_, cursor, bytes_max);
    EXPECT_TRUE(news) << news.error().message();
    return news ? *news : LogNews{};
  }

  TempDirectory directory_;
  std::string path_ = directory_.path() + "/s3.log";
};

TEST_F(IndexLogTest, HeaderAndRecordComeBackAsTheyWere) {
  const auto header = decode_header(encode_header(header_of(9)));
  ASSERT_TRUE(header);
  EXPECT_EQ(*header, header_of(9));
  const auto record = decode_record(encode_record(put(5, 2), 123), 123);
  ASSERT_TRUE(record);
  EXPECT_EQ(*record, put(5, 2));
  EXPECT_FALSE(decode_record(encode_record(put(5, 2), 123), 124)) << "a record of another log";
}

TEST_F(IndexLogTest, EveryFlippedBitIsNoticed) {
  const LogEntry record = encode_record(put(5, 2), 123);
  const LogEntry header = encode_header(header_of(1));
  for (std::size_t bit = 0; bit < kLogRecordBytes * 8; ++bit) {
    LogEntry bad = record;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_record(bad, 123)) << "bit " << bit;
    bad = header;
    bad[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode_header(bad)) << "bit " << bit;
  }
}

TEST_F(IndexLogTest, ALogHasItsFullSizeFromTheStartAndRefusesMore) {
  const std::uint32_t most = header_of(1).records_max;
  EXPECT_EQ(std::filesystem::file_size((make(1, 0), path_)), log_bytes(most));
  IndexLog log = make(1, most);
  EXPECT_EQ(log.append(put(most + 1, 0)).code(), Code::kNoSpace);
  EXPECT_EQ(std::filesystem::file_size(path_), log_bytes(most));
  LogCursor cursor;
  EXPECT_EQ(read(cursor).records.size(), most);
}

TEST_F(IndexLogTest, TruncationAtEachRecordKeepsAllBeforeIt) {
  make(1, 20);
  for (std::uint32_t kept = 20; kept > 0; --kept) {
    std::filesystem::resize_file(path_, (kept + 1) * kLogRecordBytes - 1);
    LogCursor cursor;
    const LogNews torn = read(cursor);
    EXPECT_EQ(torn.records.size(), kept - 1);
    EXPECT_TRUE(torn.torn);
    std::filesystem::resize_file(path_, kept * kLogRecordBytes);
    cursor = {};
    const LogNews cut = read(cursor);
    ASSERT_EQ(cut.records.size(), kept - 1);
    EXPECT_FALSE(cut.torn);
    for (std::uint32_t i = 0; i + 1 < kept; ++i) EXPECT_EQ(cut.records[i], put(i + 1, i % kSlots));
  }
  std::filesystem::resize_file(path_, 63);
  LogCursor cursor;
  const auto headless = read_log(path_, cursor, UINT64_MAX);
  ASSERT_FALSE(headless);
  EXPECT_EQ(headless.error().code(), Code::kCorrupt);
}

TEST_F(IndexLogTest, ADamagedRecordLosesOnlyItself) {
  make(1, 20);
  flip_bit(path_, (7 * kLogRecordBytes + 9) * 8 + 3);
  LogCursor cursor;
  const LogNews news = read(cursor);
  EXPECT_EQ(news.records.size(), 19U);
  EXPECT_EQ(news.damaged, 1U);
  EXPECT_FALSE(news.torn);
  EXPECT_EQ(cursor.position, 20U);
}

TEST_F(IndexLogTest, ADamagedLastRecordIsTheTornTailAndIsWrittenOver) {
  make(1, 20);
  flip_bit(path_, 20 * kLogRecordBytes * 8);
  LogCursor cursor;
  const LogNews news = read(cursor);
  EXPECT_EQ(news.records.size(), 19U);
  EXPECT_TRUE(news.torn);
  auto log = IndexLog::resume(path_, news.header, cursor.position);
  ASSERT_TRUE(log);
  ASSERT_TRUE(log->append(put(50, 1)).is_ok());
  const LogNews after = read(cursor);
  ASSERT_EQ(after.records.size(), 1U);
  EXPECT_EQ(after.records[0], put(50, 1));
}

TEST_F(IndexLogTest, ADamagedRunLongerThanTheFirstPieceIsLookedPast) {
  make(1, 200);
  for (std::uint64_t i = 1; i <= 100; ++i) flip_bit(path_, i * kLogRecordBytes * 8);
  LogCursor cursor;
  const LogNews news = read(cursor);
  EXPECT_EQ(news.damaged, 100U);
  EXPECT_EQ(news.records.size(), 100U);
}

TEST_F(IndexLogTest, AFollowerSeesEachRecordOnceAndInBoundedPieces) {
  IndexLog log = make(1, 3);
  LogCursor cursor;
  EXPECT_TRUE(read(cursor).restarted);
  EXPECT_TRUE(read(cursor).records.empty());
  for (std::uint64_t seq = 4; seq <= 150; ++seq) ASSERT_TRUE(log.append(put(seq, 0)).is_ok());
  std::uint64_t expected = 4;
  for (int i = 0; i < 10; ++i) {
    const LogNews news = read(cursor, 1);
    EXPECT_FALSE(news.restarted);
    EXPECT_LE(news.bytes_read, 256U * 1024U);
    for (const auto& record : news.records) EXPECT_EQ(record.seq, expected++);
    if (!news.more) break;
  }
  EXPECT_EQ(expected, 151U);
}

TEST_F(IndexLogTest, ANewEpochRestartsTheFollower) {
  make(1, 10);
  LogCursor cursor;
  EXPECT_EQ(read(cursor).records.size(), 10U);
  make(2, 2);
  const LogNews news = read(cursor);
  EXPECT_TRUE(news.restarted);
  EXPECT_EQ(news.header.epoch, 2U);
  EXPECT_EQ(news.records.size(), 2U);
}

TEST_F(IndexLogTest, RecordsThatPointOutsideTheirSegmentAreNotBelieved) {
  IndexLog log = make(1, 1);
  ASSERT_TRUE(log.append(put(2, kSlots)).is_ok());
  IndexRecord long_one = put(3, 1);
  long_one.size_bytes = 8193;
  ASSERT_TRUE(log.append(long_one).is_ok());
  ASSERT_TRUE(log.append(put(4, 1)).is_ok());
  LogCursor cursor;
  const LogNews news = read(cursor);
  EXPECT_EQ(news.records.size(), 2U);
  EXPECT_EQ(news.damaged, 2U);
}

}  // namespace
}  // namespace kvstream::test
