#include "replay/trace_reader.hpp"

#include <gtest/gtest.h>
#include <zstd.h>

#include <fstream>

#include "core/keys.hpp"
#include "replay/own_trace.hpp"
#include "replay/workload_source.hpp"
#include "tiers/temp_directory.hpp"

namespace kvstream {
namespace {

class TraceReader : public testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "trace.jsonl") {
    const std::string path = directory_.path() + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  static std::string packed(const std::string& text) {
    std::string result(ZSTD_compressBound(text.size()), '\0');
    result.resize(ZSTD_compress(result.data(), result.size(), text.data(), text.size(), 3));
    return result;
  }
  Workload read(const std::string& text) {
    auto workload = read_trace(write(text));
    EXPECT_TRUE(workload) << workload.error().message();
    return workload ? *workload : Workload{};
  }
  std::string error_of(const std::string& text) {
    const auto workload = read_trace(write(text));
    if (workload) return "";
    EXPECT_EQ(workload.error().message().find('\n'), std::string::npos);
    EXPECT_NE(workload.error().message().find(directory_.path()), std::string::npos);
    return workload.error().message();
  }
  void expect_error(const std::string& text, const std::string& part) {
    EXPECT_NE(error_of(text).find(part), std::string::npos) << error_of(text);
  }

  test::TempDirectory directory_;
};

constexpr char kTwo[] =
    R"({"timestamp": 1000, "input_length": 1100, "output_length": 5, "hash_ids": [7, 8, 9]}
{"timestamp": 1500, "input_length": 1536, "output_length": 6, "hash_ids": [7, 8, 10]}
)";

TEST_F(TraceReader, MooncakeIdsBecomeRunsThatStandForTheirPrefix) {
  const auto workload = read(kTwo);
  EXPECT_EQ(workload.naming, Naming::kWholePrefix);
  EXPECT_EQ(workload.content_tokens, 512U);
  EXPECT_TRUE(workload.timed);
  ASSERT_EQ(workload.requests.size(), 2U);
  const auto& first = workload.requests[0];
  EXPECT_EQ(first.input_tokens, 1100U);
  EXPECT_EQ(first.output_tokens, 5U);
  EXPECT_EQ(first.arrival_ns, 0);
  EXPECT_EQ(workload.requests[1].arrival_ns, 500 * kMillisecond);
  EXPECT_EQ(first.prompt, (std::vector<TokenRun>{{7, 0, 512}, {8, 0, 512}, {9, 0, 76}}));
}

TEST_F(TraceReader, EqualMooncakeIdsAreEqualKeysAtEveryBlockSize) {
  const auto workload = read(kTwo);
  const BlockKey space = namespace_key(Namespace{});
  for (const std::uint32_t tokens : {16U, 64U, 256U, 512U}) {
    const auto requests = make_requests(workload, {tokens, 131'072, 1}, Tail::kKeep, space);
    const std::size_t shared = 1024 / tokens;
    for (std::size_t b = 0; b < requests[0].keys.size(); ++b) {
      EXPECT_EQ(requests[0].keys[b] == requests[1].keys[b], b < shared) << tokens << " " << b;
    }
  }
}

TEST_F(TraceReader, AFullAndAPartialBlockOfOneIdHaveTwoKeys) {
  const auto workload = read(
      R"({"timestamp": 0, "input_length": 512, "output_length": 1, "hash_ids": [3]}
{"timestamp": 0, "input_length": 100, "output_length": 1, "hash_ids": [3]})");
  const auto requests = make_requests(workload, {}, Tail::kKeep, namespace_key(Namespace{}));
  EXPECT_NE(requests[0].keys[0], requests[1].keys[0]);
}

TEST_F(TraceReader, ABrokenMooncakeLineIsNamedByItsNumber) {
  expect_error(std::string(kTwo) + "{broken\n", "line 3: not a JSON object");
  expect_error("\n{\"timestamp\": 0, \"output_length\": 1, \"hash_ids\": []}\n",
               "line 2: \"input_length\" is missing");
  expect_error(R"({"timestamp": 0, "input_length": -4, "output_length": 1, "hash_ids": []})",
               "line 1: \"input_length\" is -4");
  expect_error(R"({"timestamp": 0, "input_length": 513, "output_length": 1, "hash_ids": [1]})",
               "line 1: 513 input tokens are 2 blocks of 512, but \"hash_ids\" has 1");
  expect_error(R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [1, 2]})",
               "are 1 blocks of 512, but \"hash_ids\" has 2");
  expect_error(R"({"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": ["x"]})",
               "line 1: \"hash_ids\" holds \"x\"");
  expect_error(R"({"timestamp": 9, "input_length": 5, "output_length": 1, "hash_ids": [1]}
{"timestamp": 8, "input_length": 5, "output_length": 1, "hash_ids": [1]})",
               "line 2: its timestamp is before");
}

constexpr char kSession[] =
    R"({"id":"a","block_size":64,"hash_id_scope":"local","requests":[{"t":0.0,"type":"n","in":200,"out":9,"hash_runs":[[1,3]]},{"t":1.0,"type":"subagent","requests":[{"t":0.0,"type":"n","in":64,"out":2,"hash_runs":[[9,1]]}]},{"t":5.0,"type":"s","in":320,"out":8,"hash_runs":[[1,2],[4,3]]}]}
)";

TEST_F(TraceReader, ASessionKeepsItsOrderAndItsSubagentsStandWhereTheyWereCalled) {
  const auto workload = read(kSession);
  EXPECT_FALSE(workload.timed);
  EXPECT_EQ(workload.content_tokens, 64U);
  EXPECT_EQ(workload.naming, Naming::kContent);
  ASSERT_EQ(workload.requests.size(), 3U);
  const std::uint64_t text = workload.requests[0].prompt[0].stream;
  ASSERT_EQ(workload.requests[0].prompt.size(), 2U);
  EXPECT_EQ(workload.requests[0].prompt[0], (TokenRun{text, 64, 192}));
  EXPECT_EQ(workload.requests[0].prompt[1].count, 8U);  // beyond the ids: this request's alone
  EXPECT_NE(workload.requests[0].prompt[1].stream, text);
  EXPECT_EQ(workload.requests[1].output_tokens, 2U);
  EXPECT_EQ(workload.requests[1].prompt, (std::vector<TokenRun>{{text, 9 * 64, 64}}));
  EXPECT_EQ(workload.requests[2].prompt,
            (std::vector<TokenRun>{{text, 64, 128}, {text, 4 * 64, 192}}));
  for (const auto& request : workload.requests) EXPECT_EQ(request.conversation, 0U);
}

TEST_F(TraceReader, IdsOfTwoSessionsNameDifferentTexts) {
  std::string other = kSession;
  other.replace(other.find("\"a\""), 3, "\"b\"");
  const auto workload = read(std::string(kSession) + other);
  ASSERT_EQ(workload.requests.size(), 6U);
  EXPECT_NE(workload.requests[0].prompt[0].stream, workload.requests[3].prompt[0].stream);
  EXPECT_EQ(workload.requests[3].conversation, 1U);
  std::string global = std::string(kSession) + other;
  for (std::size_t at = 0; (at = global.find("local", at)) != std::string::npos;) {
    global.replace(at, 5, "everywhere");
  }
  const auto shared = read(global);
  EXPECT_EQ(shared.requests[0].prompt[0].stream, shared.requests[3].prompt[0].stream);
}

TEST_F(TraceReader, IdsThatCoverMoreThanThePromptAreCutOff) {
  const auto workload = read(
      R"({"id":"a","block_size":64,"requests":[{"in":100,"out":1,"hash_runs":[[1,1],[5,9]]}]})");
  EXPECT_EQ(workload.requests[0].prompt[1].count, 36U);
  EXPECT_EQ(workload.requests[0].prompt.size(), 2U);
}

TEST_F(TraceReader, ABrokenSessionIsNamedByItsLineAndEntry) {
  expect_error(std::string(kSession) + R"({"id":"b","block_size":64,"requests":[{"in":1}]})",
               "line 2: entry 1 of its requests: \"out\" is missing");
  expect_error(R"({"id":"b","block_size":64,"requests":[{"in":1,"out":1,"hash_runs":[[1,-2]]}]})",
               "line 1: entry 1 of its requests: \"hash_runs\" holds [1,-2]");
  expect_error(std::string(kSession) + R"({"id":"b","block_size":32,"requests":[]})",
               "line 2: \"block_size\" is 32");
}

constexpr char kAzure[] =
    "TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 23:59:59.9799600,4808,10\r\n"
    "2023-11-17 00:00:01,3180,8";

TEST_F(TraceReader, AzureGivesArrivalsAndLengthsAndSharesNothing) {
  const auto workload = read(kAzure);
  EXPECT_TRUE(workload.timed);
  ASSERT_EQ(workload.requests.size(), 2U);
  EXPECT_EQ(workload.requests[0].input_tokens, 4808U);
  EXPECT_EQ(workload.requests[0].output_tokens, 10U);
  EXPECT_EQ(workload.requests[1].input_tokens, 3180U);
  EXPECT_EQ(workload.requests[1].arrival_ns, 1'020'040'000);
  EXPECT_NE(workload.requests[0].prompt[0].stream, workload.requests[1].prompt[0].stream);
}

TEST_F(TraceReader, ABrokenAzureLineIsNamedByItsNumber) {
  expect_error(std::string(kAzure) + "\n2023-13-17 00:00:02,1,1\n", "line 4: \"2023-13-17");
  expect_error(std::string(kAzure) + "\n2023-11-17 00:00:02,1,x\n", "line 4: its token counts");
  expect_error(std::string(kAzure) + "\nsomething\n", "line 4: not like TIMESTAMP");
  expect_error(std::string(kAzure) + "\n2023-11-17 00:00:00,1,1\n", "line 4: its timestamp");
}

TEST_F(TraceReader, EveryFormatIsReadPackedToo) {
  for (const char* text : {kTwo, kSession, kAzure}) {
    const auto plain = read(text);
    auto unpacked = read_trace(write(packed(text)));
    ASSERT_TRUE(unpacked) << unpacked.error().message();
    EXPECT_EQ(*unpacked, plain);
  }
}

TEST_F(TraceReader, LinesThatCrossTheBuffersAreWhole) {
  std::string text;
  for (int i = 0; i < 9000; ++i) {
    text += R"({"timestamp": )" + std::to_string(i) +
            R"(, "input_length": 600, "output_length": 5, "hash_ids": [)" + std::to_string(i) +
            ", 1]}\n";
  }
  const auto plain = read(text);
  ASSERT_EQ(plain.requests.size(), 9000U);
  EXPECT_EQ(plain.requests[8999].prompt[0].stream, 8999U);
  EXPECT_EQ(read(packed(text)), plain);
}

TEST_F(TraceReader, APackedFileThatIsCutOffIsAnError) {
  std::string text = packed(kTwo);
  text.resize(text.size() - 6);
  expect_error(text, "no whole zstd file");
}

TEST_F(TraceReader, WhatIsNoTraceIsSaidInOneLine) {
  expect_error("{\"a\": 1}\n", "line 1: no known trace");
  expect_error("hello\n", "line 1: not a JSON object");
  expect_error("", "no requests");
  const auto missing = read_trace("/no/such/file");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_EQ(missing.error().message().find('\n'), std::string::npos);
  EXPECT_FALSE(read_trace(directory_.path()));
}

TEST_F(TraceReader, OurOwnFormatReadsBackEqual) {
  for (const char* text : {kTwo, kSession, kAzure}) {
    const auto workload = read(text);
    for (const char* name : {"own.jsonl", "own.jsonl.zst"}) {
      const std::string path = directory_.path() + "/" + name;
      ASSERT_TRUE(write_own_trace(workload, path).is_ok());
      const auto again = read_trace(path);
      ASSERT_TRUE(again) << again.error().message();
      EXPECT_EQ(*again, workload);
    }
  }
}

TEST_F(TraceReader, OurOwnFormatNeedsNoHead) {
  const auto workload = read(R"({"input":5,"output":1,"runs":[[1,0,3],[2,7,2]]}
{"input":3,"output":1,"conversation":9,"runs":[[1,0,3]]})");
  EXPECT_FALSE(workload.timed);
  EXPECT_EQ(workload.content_tokens, 1U);
  EXPECT_EQ(workload.requests[1].conversation, 9U);
  EXPECT_EQ(workload.requests[0].prompt, (std::vector<TokenRun>{{1, 0, 3}, {2, 7, 2}}));
  EXPECT_TRUE(read(R"({"arrival_s":0.5,"input":0,"output":1,"runs":[]})").timed);
}

TEST_F(TraceReader, ABrokenLineOfOurOwnIsNamedByItsNumber) {
  const std::string good = R"({"arrival_s":2,"input":3,"output":1,"runs":[[1,0,3]]})";
  expect_error(good + "\n" + R"({"arrival_s":3,"input":4,"output":1,"runs":[[1,0,3]]})",
               "line 2: \"runs\" cover 3 tokens, \"input\" says 4");
  expect_error(good + "\n" + R"({"arrival_s":3,"input":4,"output":1,"runs":[[1,0]]})",
               "line 2: \"runs\" holds [1,0]");
  expect_error(good + "\n" + R"({"arrival_s":1,"input":3,"output":1,"runs":[[1,0,3]]})",
               "line 2: its arrival is before");
  expect_error(R"({"kvstream_trace":2,"naming":"content"})", "line 1: \"kvstream_trace\" is 2");
  expect_error(R"({"kvstream_trace":1,"naming":"both"})", "line 1: \"naming\" is \"both\"");
}

TEST_F(TraceReader, SkippedAndWantedRequestsAreTheFirstOfTheList) {
  SourceOptions options;
  options.trace = write(kTwo);
  options.skip = 1;
  options.requests = 1;
  auto workload = load_workload(options);
  ASSERT_TRUE(workload);
  EXPECT_EQ(workload->requests.size(), 2U);
  drop_first(*workload, 1);
  ASSERT_EQ(workload->requests.size(), 1U);
  EXPECT_EQ(workload->requests[0].output_tokens, 6U);
  EXPECT_EQ(workload->requests[0].arrival_ns, 0);
  options.skip = 0;
  EXPECT_EQ(load_workload(options)->requests.size(), 1U);
  options.skip = 2;
  EXPECT_NE(load_workload(options).error().message().find("none behind the first 2"),
            std::string::npos);
}

}  // namespace
}  // namespace kvstream
