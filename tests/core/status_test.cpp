#include "kvstream/status.hpp"

#include <gtest/gtest.h>

#include <set>

namespace kvstream {
namespace {

TEST(Status, IsOkByDefaultAndSaysSo) {
  const Status status;
  EXPECT_TRUE(status.is_ok());
  EXPECT_EQ(status.to_string(), "ok");
}

TEST(Status, CarriesCodeAndMessageThroughAResult) {
  const auto fail = []() -> Result<int> { return failure(Code::kIoError, "failed to read 7 B"); };
  const Result<int> result = fail();
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().code(), Code::kIoError);
  EXPECT_EQ(result.error().to_string(), "io_error: failed to read 7 B");
}

TEST(Status, NamesEachCodeDifferently) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Code::kClosed); ++code) {
    names.insert(to_string(static_cast<Code>(code)));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(Code::kClosed) + 1);
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace kvstream
