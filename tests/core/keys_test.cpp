#include "core/keys.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

namespace kvstream {
namespace {

std::vector<std::byte> bytes_of_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

Namespace namespace_of(const nlohmann::json& json) {
  Namespace ns;
  ns.model = json.at("model");
  ns.revision = json.at("revision");
  ns.dtype = json.at("dtype");
  ns.layout_version = json.at("layout_version");
  ns.tokens_per_block = json.at("tokens_per_block");
  ns.tp_size = json.at("tp_size");
  ns.tp_rank = json.at("tp_rank");
  ns.pp_size = json.at("pp_size");
  ns.pp_rank = json.at("pp_rank");
  ns.salt = json.at("salt");
  return ns;
}

TEST(Keys, MatchTheGoldenVectors) {
  std::ifstream file(KVSTREAM_GOLDEN_KEYS);
  const nlohmann::json golden = nlohmann::json::parse(file);
  ASSERT_GE(golden.at("cases").size(), 5U);
  for (const nlohmann::json& item : golden.at("cases")) {
    SCOPED_TRACE(item.at("name").get<std::string>());
    const nlohmann::json& expected = item.at("keys");
    const BlockKey ns = namespace_key(namespace_of(item.at("namespace")));
    EXPECT_EQ(ns.to_hex(), expected.at("namespace"));
    BlockKey parent = ns;
    for (std::size_t i = 0; i < item.at("chain").size(); ++i) {
      const auto tokens = item["chain"][i].at("tokens").get<std::vector<std::uint32_t>>();
      const auto extra = item["chain"][i].at("extra_keys").get<std::vector<std::string>>();
      parent = chain_key(parent, tokens, extra);
      EXPECT_EQ(parent.to_hex(), expected.at("chain").at(i));
    }
    for (std::size_t i = 0; i < item.at("external_hashes").size(); ++i) {
      const auto hash = bytes_of_hex(item["external_hashes"][i]);
      EXPECT_EQ(external_key(ns, hash).to_hex(), expected.at("external_hashes").at(i));
    }
    for (std::size_t i = 0; i < item.at("external_ids").size(); ++i) {
      const std::uint64_t id = std::stoull(item["external_ids"][i].get<std::string>());
      EXPECT_EQ(external_key(ns, id).to_hex(), expected.at("external_ids").at(i));
    }
  }
}

TEST(Keys, DifferWhenAnyFieldOfTheNamespaceDiffers) {
  std::vector<Namespace> all(10);
  all[0].model = "m";
  all[1].revision = "m";
  all[2].dtype = "m";
  all[3].salt = "m";
  all[4].layout_version = 2;
  all[5].tokens_per_block = 2;
  all[6].tp_size = 2;
  all[7].tp_rank = 2;
  all[8].pp_size = 2;
  all[9].pp_rank = 2;
  all.emplace_back();
  std::set<BlockKey> keys;
  std::set<std::uint64_t> fingerprints;
  for (const Namespace& ns : all) {
    keys.insert(namespace_key(ns));
    fingerprints.insert(namespace_fingerprint(namespace_key(ns)));
  }
  EXPECT_EQ(keys.size(), all.size());
  EXPECT_EQ(fingerprints.size(), all.size());
}

TEST(Keys, KeepNeighbouringTextsApart) {
  Namespace left, right;
  left.model = "ab";
  left.revision = "c";
  right.model = "a";
  right.revision = "bc";
  EXPECT_NE(namespace_key(left), namespace_key(right));
  const BlockKey root = namespace_key({});
  const std::vector<std::string> one = {"ab", "c"}, two = {"a", "bc"};
  const std::vector<std::uint32_t> tokens = {1, 2};
  EXPECT_NE(chain_key(root, tokens, one), chain_key(root, tokens, two));
}

TEST(Keys, DependOnEveryTokenAndOnTheParent) {
  const BlockKey root = namespace_key({});
  std::vector<std::uint32_t> tokens(512, 7);
  const BlockKey key = chain_key(root, tokens);
  for (const std::size_t at : {0U, 255U, 511U}) {
    tokens[at] = 8;
    EXPECT_NE(chain_key(root, tokens), key);
    tokens[at] = 7;
  }
  EXPECT_EQ(chain_key(root, tokens), key);
  EXPECT_NE(chain_key(key, tokens), key);
}

TEST(Keys, AreTheSameFromEveryThread) {
  const BlockKey root = namespace_key({});
  const std::vector<std::uint32_t> tokens = {1, 2, 3};
  const BlockKey expected = chain_key(root, tokens);
  std::vector<std::thread> threads;
  std::array<BlockKey, 4> got;
  for (BlockKey& key : got) {
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) key = chain_key(root, tokens);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const BlockKey& key : got) EXPECT_EQ(key, expected);
}

TEST(BlockKey, WritesItsBytesInOrder) {
  BlockKey key;
  key.bytes[0] = 0x0f;
  key.bytes[15] = 0xa0;
  EXPECT_EQ(key.to_hex(), "0f0000000000000000000000000000a0");
  EXPECT_EQ(key.low64(), 0x0fU);
}

}  // namespace
}  // namespace kvstream
