// What the engine model must know of a language model: its size, its arithmetic, its KV cache.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvstream/status.hpp"

namespace kvstream {

/// One language model. A plain value; every figure's source is in docs/engine-model.md.
struct ModelProfile {
  std::string name;
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;     ///< query heads
  std::uint32_t kv_heads = 0;  ///< as many as heads where the KV is compressed (MLA)
  std::uint32_t head_dim = 0;
  std::uint32_t intermediate = 0;  ///< of a dense feed-forward layer; 0 where it is not known
  std::uint32_t vocab = 0;         ///< 0: logits count with every token's parameters
  double parameters_total = 0;
  double parameters_active = 0;  ///< that one token passes through (all, unless experts)

  double kv_bytes_per_token = 0;  ///< over all layers and all devices of the engine
  double weight_bytes = 0;        ///< over all devices
  /// Per (query token, context token) pair, all layers: scores and the sum over values.
  double attention_flops_per_pair = 0;
  /// The same where a request computes one token; other than the above only under MLA.
  double attention_flops_per_pair_decode = 0;

  bool has_experts() const { return parameters_active < parameters_total; }
  double active_weight_bytes() const { return weight_bytes * parameters_active / parameters_total; }
};

/// By name (llama-3-8b, qwen2.5-7b, llama-3-70b, qwen1.5-110b, deepseek-v3), or in free form:
/// custom:layers=..,hidden=..,heads=..,kv-heads=..,head-dim=..,params=7e9
///   [,active=..][,vocab=..][,dtype=2][,kv-bytes=..][,weight-dtype=2]
/// dtype and weight-dtype are bytes an element; kv-bytes overrides the computed bytes per token.
Result<ModelProfile> model_profile(std::string_view text);

/// The names that model_profile() knows, separated by ", ".
std::string model_profile_names();

}  // namespace kvstream
