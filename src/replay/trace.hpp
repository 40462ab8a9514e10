// What is replayed: requests in order of arrival, with the keys and sizes of their prompt's blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kvstream/block.hpp"
#include "kvstream/clock.hpp"

namespace kvstream {

/// One request of a trace. The keys cover the prompt; a last block that is partial has a key of its
/// own, or none where the tail is dropped (workload.hpp).
struct TraceRequest {
  Nanos arrival_ns = 0;  ///< since the trace's first request, in the trace's own time
  std::uint32_t input_tokens = 0;
  std::uint32_t output_tokens = 0;
  std::uint32_t rank = 0;                  ///< whose it is (router.hpp)
  std::uint64_t conversation = 0;          ///< its requests keep the list's order
  std::vector<BlockKey> keys;              ///< in prefix order
  std::vector<std::uint32_t> sizes_bytes;  ///< one a key, scaled

  std::uint64_t total_bytes() const {
    std::uint64_t sum = 0;
    for (const std::uint32_t size : sizes_bytes) sum += size;
    return sum;
  }
};

/// How tokens become blocks, and blocks bytes. One for a whole run.
struct BlockShape {
  std::uint32_t block_tokens = 512;
  double kv_bytes_per_token = 131'072;  ///< of the model, unscaled (Llama-3-8B, bf16)
  double bytes_scale = 1.0;             ///< payload here / payload represented

  /// At least one byte for a block that holds a token.
  std::uint32_t size_bytes(std::uint32_t tokens) const {
    const double bytes = static_cast<double>(tokens) * kv_bytes_per_token * bytes_scale;
    return std::max<std::uint32_t>(1, static_cast<std::uint32_t>(bytes + 0.5));
  }
  std::uint32_t block_bytes_max() const { return size_bytes(block_tokens); }
  std::uint32_t blocks(std::uint32_t tokens) const {
    return (tokens + block_tokens - 1) / block_tokens;
  }
  /// Tokens in the first `count` blocks of a prompt of `input_tokens`.
  std::uint32_t tokens_in(std::uint32_t count, std::uint32_t input_tokens) const {
    return std::min(input_tokens, count * block_tokens);
  }
};

/// Gives a request its keys from block ids that stand for a whole prefix each. A partial block has
/// another key than the full block of the same id: its bytes are others.
void put_keys(TraceRequest& request, const BlockKey& namespace_key, const BlockShape& shape,
              const std::vector<std::uint64_t>& ids);

}  // namespace kvstream
