// Block keys: SHA-256 over (parent key, token ids as little-endian u32, extra keys), first 128
// bits.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvstream/block.hpp"

namespace kvstream {

/// Everything that must be equal for two processes to share blocks. Changing any field changes
/// every key.
struct Namespace {
  std::string model;
  std::string revision;
  std::string dtype;  ///< with quantisation, e.g. "bf16" or "fp8_e4m3"
  std::uint32_t layout_version = 1;
  std::uint32_t tokens_per_block = 512;
  std::uint32_t tp_size = 1, tp_rank = 0;
  std::uint32_t pp_size = 1, pp_rank = 0;
  std::string salt;  ///< of a tenant
};

/// The first link of the chain: SHA-256 over a version tag and the length-prefixed fields.
BlockKey namespace_key(const Namespace& ns);
/// What segment headers carry, to refuse blocks of another namespace early.
std::uint64_t namespace_fingerprint(const BlockKey& namespace_key);

/// Key of the block that holds `tokens` behind `parent` (namespace_key() for the first block).
/// `extra_keys` are length-prefixed, in order (image hashes, adapter names).
BlockKey chain_key(const BlockKey& parent, std::span<const std::uint32_t> tokens,
                   std::span<const std::string> extra_keys = {});

/// Key of a block that another system has hashed already (vLLM's block hash, a trace's id): the
/// hash is chained behind the namespace alone, since it covers its own prefix.
BlockKey external_key(const BlockKey& namespace_key, std::span<const std::byte> external_hash);
BlockKey external_key(const BlockKey& namespace_key, std::uint64_t external_id);

}  // namespace kvstream
