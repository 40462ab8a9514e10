// The published traces, where they are there: in the folder of KVSTREAM_TEST_TRACES, or beside the
// source tree.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "replay/trace_reader.hpp"

namespace kvstream {
namespace {

class PublicTraces : public testing::Test {
 protected:
  void SetUp() override {
    const char* named = std::getenv("KVSTREAM_TEST_TRACES");
    folder_ = named != nullptr ? named : KVSTREAM_SOURCE_DIR "/../shared/traces";
    if (!std::filesystem::is_directory(folder_)) {
      GTEST_SKIP() << "no traces in " << folder_ << "; KVSTREAM_TEST_TRACES names another folder";
    }
  }
  Workload read(const std::string& name) {
    auto workload = read_trace(folder_ + "/" + name);
    EXPECT_TRUE(workload) << workload.error().message();
    return workload ? std::move(*workload) : Workload{};
  }

  std::string folder_;
};

TEST_F(PublicTraces, MooncakesConversationsAreAllRead) {
  const auto workload = read("mooncake/conversation_trace.jsonl");
  EXPECT_EQ(workload.requests.size(), 12'031U);
  EXPECT_EQ(workload.naming, Naming::kWholePrefix);
}

TEST_F(PublicTraces, ClaudeCodesFourHundredSessionsAreAllRead) {
  const auto workload = read("claude_code/claude_code_400.runs.jsonl.zst");
  EXPECT_EQ(workload.requests.size(), 28'830U);
  EXPECT_EQ(workload.requests.back().conversation, 399U);
  EXPECT_EQ(workload.content_tokens, 64U);
}

TEST_F(PublicTraces, AzuresRequestsAreAllRead) {
  const auto code = read("azure/AzureLLMInferenceTrace_code.csv.zst");
  EXPECT_EQ(code.requests.size(), 8819U);
  const auto conversations = read("azure/AzureLLMInferenceTrace_conv.csv.zst");
  EXPECT_EQ(conversations.requests.size(), 19'366U);
}

}  // namespace
}  // namespace kvstream
