#include "core/keys.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace kvstream {
namespace {

// What is hashed, in order (all integers little-endian u32; a text is its length, then its bytes):
//   namespace  "kvn1", model, revision, dtype, layout_version, tokens_per_block, tp_size, tp_rank,
//              pp_size, pp_rank, salt
//   chain      "kvb1", parent's 16 bytes, count of tokens, tokens, count of extra keys, extra keys
//   external   "kvx1", namespace key's 16 bytes, length, bytes
// The tag keeps the three apart; the counts keep tokens and extra keys apart.
constexpr std::string_view kNamespaceTag = "kvn1";
constexpr std::string_view kChainTag = "kvb1";
constexpr std::string_view kExternalTag = "kvx1";

// One a thread: fetching the algorithm and making a context costs more than hashing a block's
// tokens does.
class Sha256 {
 public:
  static Sha256& of_this_thread() {
    thread_local Sha256 hasher;
    return hasher;
  }

  void begin(std::string_view tag) {
    require(EVP_DigestInit_ex2(context_, algorithm_, nullptr) == 1);
    add_bytes(tag.data(), tag.size());
  }
  void add_bytes(const void* data, std::size_t size_bytes) {
    require(EVP_DigestUpdate(context_, data, size_bytes) == 1);
  }
  void add_u32(std::uint32_t value) {
    const std::array<std::uint8_t, 4> bytes = {
        static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(value >> 8U),
        static_cast<std::uint8_t>(value >> 16U), static_cast<std::uint8_t>(value >> 24U)};
    add_bytes(bytes.data(), bytes.size());
  }
  void add_text(std::string_view text) {
    add_u32(static_cast<std::uint32_t>(text.size()));
    add_bytes(text.data(), text.size());
  }
  void add_key(const BlockKey& key) { add_bytes(key.bytes.data(), key.bytes.size()); }
  BlockKey end() {
    std::array<std::uint8_t, EVP_MAX_MD_SIZE> digest{};
    unsigned size_bytes = 0;
    require(EVP_DigestFinal_ex(context_, digest.data(), &size_bytes) == 1);
    BlockKey key;
    std::copy_n(digest.begin(), key.bytes.size(), key.bytes.begin());
    return key;
  }

  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  ~Sha256() {
    EVP_MD_CTX_free(context_);
    EVP_MD_free(algorithm_);
  }

 private:
  Sha256() : algorithm_(EVP_MD_fetch(nullptr, "SHA256", nullptr)), context_(EVP_MD_CTX_new()) {
    require(algorithm_ != nullptr && context_ != nullptr);
  }
  // Hashing fails only without memory or without SHA-256 in the library. A key that is wrong would
  // name other bytes, so there is nothing to go on with.
  static void require(bool good) {
    if (!good) std::abort();
  }

  EVP_MD* algorithm_;
  EVP_MD_CTX* context_;
};

}  // namespace

std::string BlockKey::to_hex() const {
  static constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

BlockKey namespace_key(const Namespace& ns) {
  Sha256& hasher = Sha256::of_this_thread();
  hasher.begin(kNamespaceTag);
  for (const std::string* text : {&ns.model, &ns.revision, &ns.dtype}) hasher.add_text(*text);
  for (const std::uint32_t number :
       {ns.layout_version, ns.tokens_per_block, ns.tp_size, ns.tp_rank, ns.pp_size, ns.pp_rank}) {
    hasher.add_u32(number);
  }
  hasher.add_text(ns.salt);
  return hasher.end();
}

std::uint64_t namespace_fingerprint(const BlockKey& namespace_key) { return namespace_key.low64(); }

BlockKey chain_key(const BlockKey& parent, std::span<const std::uint32_t> tokens,
                   std::span<const std::string> extra_keys) {
  static_assert(std::endian::native == std::endian::little, "tokens are hashed as they lie");
  Sha256& hasher = Sha256::of_this_thread();
  hasher.begin(kChainTag);
  hasher.add_key(parent);
  hasher.add_u32(static_cast<std::uint32_t>(tokens.size()));
  hasher.add_bytes(tokens.data(), tokens.size_bytes());
  hasher.add_u32(static_cast<std::uint32_t>(extra_keys.size()));
  for (const std::string& extra : extra_keys) hasher.add_text(extra);
  return hasher.end();
}

BlockKey external_key(const BlockKey& namespace_key, std::span<const std::byte> external_hash) {
  Sha256& hasher = Sha256::of_this_thread();
  hasher.begin(kExternalTag);
  hasher.add_key(namespace_key);
  hasher.add_u32(static_cast<std::uint32_t>(external_hash.size()));
  hasher.add_bytes(external_hash.data(), external_hash.size());
  return hasher.end();
}

BlockKey external_key(const BlockKey& namespace_key, std::uint64_t external_id) {
  std::array<std::byte, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(external_id >> (8 * i));
  }
  return external_key(namespace_key, bytes);
}

}  // namespace kvstream
