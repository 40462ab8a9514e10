#include "replay/generator.hpp"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/keys.hpp"

namespace kvstream {
namespace {

const BlockKey kNamespace = namespace_key(Namespace{});
const BlockShape kShape{512, 131'072, 1.0 / 256};

std::vector<TraceRequest> make(DocumentsOptions options) {
  auto requests = generate_documents(options, kShape, kNamespace);
  EXPECT_TRUE(requests);
  return *requests;
}

TEST(Generator, TheSameSeedMakesTheSameRequests) {
  const auto a = make({.documents = 5, .requests = 30, .seed = 4});
  const auto b = make({.documents = 5, .requests = 30, .seed = 4});
  const auto c = make({.documents = 5, .requests = 30, .seed = 5});
  ASSERT_EQ(a.size(), 30U);
  std::set<BlockKey> of_a;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].keys, b[i].keys);
    EXPECT_EQ(a[i].arrival_ns, b[i].arrival_ns);
    of_a.insert(a[i].keys.begin(), a[i].keys.end());
  }
  for (const auto& request : c) {
    for (const auto& key : request.keys) EXPECT_FALSE(of_a.contains(key));
  }
}

TEST(Generator, QuestionsAboutADocumentShareItsFullBlocksAndNothingElse) {
  const auto requests = make({.documents = 4, .requests = 20, .document_tokens = 4000});
  std::map<BlockKey, std::vector<const TraceRequest*>> by_first;
  for (const auto& request : requests) by_first[request.keys.front()].push_back(&request);
  EXPECT_EQ(by_first.size(), 4U);
  for (const auto& [first, group] : by_first) {
    EXPECT_EQ(group.size(), 5U);
    for (const auto* other : group) {
      if (other == group.front()) continue;
      const auto& a = group.front()->keys;
      const auto& b = other->keys;
      std::size_t shared = 0;
      while (shared < std::min(a.size(), b.size()) && a[shared] == b[shared]) ++shared;
      EXPECT_GE(shared, 2000U / 512);
      for (std::size_t i = shared; i < b.size(); ++i) {
        EXPECT_EQ(std::count(a.begin(), a.end(), b[i]), 0);
      }
    }
  }
}

TEST(Generator, SizesAddUpToTheTokensOfThePrompt) {
  for (const auto& request : make({.documents = 3, .requests = 12})) {
    EXPECT_EQ(request.keys.size(), kShape.blocks(request.input_tokens));
    EXPECT_EQ(request.total_bytes(), std::uint64_t{request.input_tokens} * 512);
  }
}

TEST(Generator, NoRequestsIsAnError) {
  EXPECT_FALSE(generate_documents({.requests = 0}, kShape, kNamespace));
}

}  // namespace
}  // namespace kvstream
