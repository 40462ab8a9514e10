#include "catalog/lease_table.hpp"

#include <gtest/gtest.h>

namespace kvstream {
namespace {

std::vector<LeasedBlock> blocks(std::size_t count) { return std::vector<LeasedBlock>(count); }

TEST(LeaseTable, ATokenIsTakenOnce) {
  LeaseTable table(4);
  const auto token = table.add(blocks(3), kSecond);
  EXPECT_EQ(table.count_blocks(), 3U);
  const auto taken = table.take(token);
  ASSERT_TRUE(taken.has_value());
  EXPECT_EQ(taken->size(), 3U);
  EXPECT_FALSE(table.take(token).has_value());
  EXPECT_EQ(table.count(), 0U);
}

TEST(LeaseTable, AGuessedTokenTakesNothing) {
  LeaseTable table(4);
  auto token = table.add(blocks(1), kSecond);
  token.words[1] ^= 1;
  EXPECT_FALSE(table.take(token).has_value());
  EXPECT_FALSE(table.take(LeaseToken{}).has_value());
  EXPECT_EQ(table.count(), 1U);
}

TEST(LeaseTable, ExpiresInOrderOfTime) {
  LeaseTable table(4);
  table.add(blocks(1), 3 * kSecond);
  table.add(blocks(2), 1 * kSecond);
  EXPECT_FALSE(table.take_expired(kSecond - 1).has_value());
  EXPECT_EQ(table.take_expired(kSecond)->size(), 2U);
  EXPECT_FALSE(table.take_expired(kSecond).has_value());
  EXPECT_EQ(table.take_expired(3 * kSecond)->size(), 1U);
}

TEST(LeaseTable, IsBoundedAndSaysSo) {
  LeaseTable table(2);
  EXPECT_TRUE(static_cast<bool>(table.add(blocks(1), kSecond)));
  EXPECT_TRUE(static_cast<bool>(table.add(blocks(1), kSecond)));
  EXPECT_TRUE(table.full());
  EXPECT_FALSE(static_cast<bool>(table.add(blocks(1), kSecond)));
}

}  // namespace
}  // namespace kvstream
