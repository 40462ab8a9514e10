#include "replay/trace_reader.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "core/keys.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream {
namespace {

const BlockKey kNamespace = namespace_key(Namespace{});

class TraceReader : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = directory_.path() + "/trace.jsonl";
    std::ofstream(path) << text;
    return path;
  }
  Result<std::vector<TraceRequest>> read(const std::string& text, TraceRange range = {}) {
    return read_mooncake(write(text), shape_, kNamespace, range);
  }
  std::string error_of(const std::string& text) {
    const auto requests = read(text);
    return requests ? "" : requests.error().message();
  }

  test::TempDirectory directory_;
  BlockShape shape_{512, 131'072, 1.0 / 256};
};

constexpr char kTwo[] =
    R"({"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]}
{"timestamp": 1500, "input_length": 1536, "output_length": 6, "hash_ids": [7, 8, 10]}
)";

TEST_F(TraceReader, TheLastBlockOfAPromptIsPartial) {
  const auto requests = read(kTwo);
  ASSERT_TRUE(requests) << requests.error().message();
  ASSERT_EQ(requests->size(), 2U);
  const auto& first = (*requests)[0];
  EXPECT_EQ(first.input_tokens, 1100U);
  EXPECT_EQ(first.output_tokens, 5U);
  EXPECT_EQ(first.sizes_bytes, (std::vector<std::uint32_t>{262'144, 262'144, 76 * 512}));
  EXPECT_EQ((*requests)[1].sizes_bytes, (std::vector<std::uint32_t>{262'144, 262'144, 262'144}));
}

TEST_F(TraceReader, EqualIdsAreEqualKeysAndArrivalsCountFromTheFirst) {
  const auto requests = read(kTwo);
  ASSERT_TRUE(requests);
  EXPECT_EQ((*requests)[0].keys[0], (*requests)[1].keys[0]);
  EXPECT_EQ((*requests)[0].keys[1], (*requests)[1].keys[1]);
  EXPECT_NE((*requests)[0].keys[2], (*requests)[1].keys[2]);
  EXPECT_EQ((*requests)[0].arrival_ns, 0);
  EXPECT_EQ((*requests)[1].arrival_ns, 500 * kMillisecond);
}

TEST_F(TraceReader, APartialBlockHasAnotherKeyThanTheFullOneOfItsId) {
  const auto requests = read(
      R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [3]}
{"timestamp": 0, "input_length": 100, "output_length": 1, "hash_ids": [3]})");
  ASSERT_TRUE(requests);
  EXPECT_NE((*requests)[0].keys[0], (*requests)[1].keys[0]);
}

TEST_F(TraceReader, ARangeSkipsAndStops) {
  const auto requests = read(kTwo, {1, 1});
  ASSERT_TRUE(requests);
  ASSERT_EQ(requests->size(), 1U);
  EXPECT_EQ((*requests)[0].output_tokens, 6U);
  EXPECT_EQ((*requests)[0].arrival_ns, 0);
  EXPECT_NE(read(kTwo, {2, 1}).error().message().find("none behind the first 2"),
            std::string::npos);
}

TEST_F(TraceReader, ABrokenLineIsNamedByItsNumber) {
  EXPECT_NE(error_of(std::string(kTwo) + "{broken\n").find("line 3: not a JSON object"),
            std::string::npos);
  EXPECT_NE(error_of("\n{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": []}\n")
                .find("line 2: \"input_length\" is missing"),
            std::string::npos);
  EXPECT_NE(error_of(R"({"timestamp": 0, "input_length": -4, "output_length": 1, "hash_ids": []})")
                .find("line 1: \"input_length\" is -4"),
            std::string::npos);
  EXPECT_NE(
      error_of(R"({"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]})")
          .find("are 2 blocks of 512, but \"hash_ids\" has 1"),
      std::string::npos);
  EXPECT_NE(
      error_of(R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": ["x"]})")
          .find("line 1: \"hash_ids\" holds \"x\""),
      std::string::npos);
  EXPECT_NE(error_of(R"({"timestamp": 9, "input_length": 5, "output_length": 1, "hash_ids": [1]}
{"timestamp": 8, "input_length": 5, "output_length": 1, "hash_ids": [1]})")
                .find("line 2: its timestamp is before"),
            std::string::npos);
}

TEST_F(TraceReader, AMissingFileIsSaidInOneLine) {
  const auto requests = read_mooncake("/no/such/file", shape_, kNamespace, {});
  ASSERT_FALSE(requests);
  EXPECT_EQ(requests.error().code(), Code::kNotFound);
  EXPECT_EQ(requests.error().message().find('\n'), std::string::npos);
}

}  // namespace
}  // namespace kvstream
