#include "replay/model_profile.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <cmath>
#include <vector>

#include "replay/profile_fields.hpp"

namespace kvstream {
namespace {

// Layers, widths and vocabulary from each model's config.json, parameters from its model card:
//   llama-3-8b     meta-llama/Meta-Llama-3-8B      8.03 B
//   qwen2.5-7b     Qwen/Qwen2.5-7B                 7.61 B
//   llama-3-70b    meta-llama/Meta-Llama-3-70B     70.6 B
//   qwen1.5-110b   Qwen/Qwen1.5-110B               111 B
//   deepseek-v3    deepseek-ai/DeepSeek-V3         671 B, 37 B active (without the MTP layer)
constexpr double kBf16Bytes = 2;
constexpr double kFp8Bytes = 1;

// Multi-head latent attention (DeepSeek-V3's config.json): what is kept of a token is one latent
// vector and one rotary key for all heads.
constexpr std::uint32_t kLatentRank = 512;
constexpr std::uint32_t kRotaryDim = 64;
constexpr std::uint32_t kPlainDim = 128;
constexpr std::uint32_t kValueDim = 128;

struct Dimensions {
  std::string_view name;
  std::uint32_t layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
  double parameters_total, parameters_active, weight_dtype_bytes;
};

// clang-format off
constexpr std::array<Dimensions, 5> kModels = {{
    {"llama-3-8b",   32, 4096,  32,   8, 128, 14336, 128256,   8.03e9,   8.03e9, kBf16Bytes},
    {"qwen2.5-7b",   28, 3584,  28,   4, 128, 18944, 152064,   7.616e9,  7.616e9, kBf16Bytes},
    {"llama-3-70b",  80, 8192,  64,   8, 128, 28672, 128256,  70.55e9,  70.55e9, kBf16Bytes},
    {"qwen1.5-110b", 80, 8192,  64,   8, 128, 49152, 152064, 111.2e9,  111.2e9,  kBf16Bytes},
    {"deepseek-v3",  61, 7168, 128, 128, 128, 18432, 129280, 671e9,     37e9,    kFp8Bytes},
}};
// clang-format on

/// Grouped-query attention: keys and values of kv_heads; scores and sums of every query head, two
/// operations (multiply, add) an element each.
void put_attention(ModelProfile& model, double kv_dtype_bytes) {
  const double pairs_width = double{1} * model.layers * model.heads * model.head_dim;
  model.kv_bytes_per_token =
      double{2} * model.layers * model.kv_heads * model.head_dim * kv_dtype_bytes;
  model.attention_flops_per_pair = 4 * pairs_width;
  model.attention_flops_per_pair_decode = 4 * pairs_width;
}

/// Prefill expands the latent to keys (plain and rotary part) and values of each head; decode
/// works on the latent itself ("absorbed"), as vLLM does it.
void put_latent_attention(ModelProfile& model) {
  const double all_heads = double{1} * model.layers * model.heads;
  model.kv_bytes_per_token = double{1} * model.layers * (kLatentRank + kRotaryDim) * kBf16Bytes;
  model.attention_flops_per_pair = 2 * all_heads * (kPlainDim + kRotaryDim + kValueDim);
  model.attention_flops_per_pair_decode = 2 * all_heads * (kLatentRank + kRotaryDim + kLatentRank);
}

ModelProfile from_dimensions(const Dimensions& known) {
  ModelProfile model{.name = std::string(known.name),
                     .layers = known.layers,
                     .hidden = known.hidden,
                     .heads = known.heads,
                     .kv_heads = known.kv_heads,
                     .head_dim = known.head_dim,
                     .intermediate = known.intermediate,
                     .vocab = known.vocab,
                     .parameters_total = known.parameters_total,
                     .parameters_active = known.parameters_active,
                     .weight_bytes = known.parameters_total * known.weight_dtype_bytes};
  if (known.name == "deepseek-v3") {
    put_latent_attention(model);
  } else {
    put_attention(model, kBf16Bytes);
  }
  return model;
}

constexpr std::array<std::string_view, 6> kRequired = {"layers",   "hidden",   "heads",
                                                       "kv-heads", "head-dim", "params"};
constexpr std::array<std::string_view, 5> kOptional = {"active", "vocab", "dtype", "kv-bytes",
                                                       "weight-dtype"};

Result<ModelProfile> custom_model(std::string_view text) {
  const Result<ProfileFields> fields = parse_profile_fields("model", text, kRequired, kOptional);
  if (!fields) return failure(fields.error());
  const double total = fields->at("params");
  const double active = field_or(*fields, "active", total);
  const double vocab = field_or(*fields, "vocab", 0);
  for (const char* name : {"layers", "hidden", "heads", "kv-heads", "head-dim", "vocab"}) {
    const double number = field_or(*fields, name, 1);
    if (number != std::floor(number) || number > 1e7) {
      return failure(Code::kInvalidArgument,
                     fmt::format("custom model profile: {}={} is not a count; give a whole number "
                                 "up to 1e7",
                                 name, number));
    }
  }
  const auto count = [&](const char* name) { return static_cast<std::uint32_t>(fields->at(name)); };
  ModelProfile model{.name = "custom",
                     .layers = count("layers"),
                     .hidden = count("hidden"),
                     .heads = count("heads"),
                     .kv_heads = count("kv-heads"),
                     .head_dim = count("head-dim"),
                     .vocab = static_cast<std::uint32_t>(vocab),
                     .parameters_total = total,
                     .parameters_active = active,
                     .weight_bytes = total * field_or(*fields, "weight-dtype", kBf16Bytes)};
  if (active > total || 2 * vocab * model.hidden >= active) {
    return failure(Code::kInvalidArgument,
                   fmt::format("custom model profile: {} parameters, {} active and a vocabulary of "
                               "{} do not go together; active is at most params, and more than "
                               "2 x vocab x hidden",
                               total, active, vocab));
  }
  put_attention(model, field_or(*fields, "dtype", kBf16Bytes));
  model.kv_bytes_per_token = field_or(*fields, "kv-bytes", model.kv_bytes_per_token);
  return model;
}

}  // namespace

Result<ModelProfile> model_profile(std::string_view text) {
  constexpr std::string_view kCustom = "custom:";
  if (text.starts_with(kCustom)) return custom_model(text.substr(kCustom.size()));
  for (const Dimensions& known : kModels) {
    if (known.name == text) return from_dimensions(known);
  }
  return failure(Code::kInvalidArgument,
                 fmt::format("no model profile '{}'; there are {} and custom:layers=..,...", text,
                             model_profile_names()));
}

std::string model_profile_names() {
  std::vector<std::string_view> names;
  for (const Dimensions& known : kModels) names.push_back(known.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace kvstream
