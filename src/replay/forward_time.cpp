#include "replay/forward_time.hpp"

#include <algorithm>

namespace kvstream {
namespace {

double plain_time_s(const PlainRates& rates, std::span<const ScheduledWork> work) {
  double prefill_tokens = 0;
  double decode_tokens = 0;
  for (const ScheduledWork& item : work) {
    (item.new_tokens > 1 || item.context_tokens == 0 ? prefill_tokens : decode_tokens) +=
        item.new_tokens;
  }
  return prefill_tokens / rates.prefill_tokens_per_s + decode_tokens / rates.decode_tokens_per_s;
}

double profiled_time_s(const ProfiledForward& forward, std::span<const ScheduledWork> work) {
  if (work.empty()) return 0;
  const ForwardCost cost = forward_cost(forward.model, work);
  return forward.overhead_s + std::max(cost.flops / forward.devices.flops_per_s(),
                                       cost.bytes / forward.devices.bytes_per_s());
}

}  // namespace

ForwardCost forward_cost(const ModelProfile& model, std::span<const ScheduledWork> work) {
  double tokens = 0;
  double samples = 0;
  double attention_flops = 0;
  double kv_tokens = 0;
  for (const ScheduledWork& item : work) {
    const double fresh = item.new_tokens;
    // Causal: each new token sees the context, the new ones before it, and itself.
    const double pairs = fresh * item.context_tokens + fresh * (fresh + 1) / 2;
    attention_flops += pairs * (item.new_tokens == 1 ? model.attention_flops_per_pair_decode
                                                     : model.attention_flops_per_pair);
    tokens += fresh;
    samples += item.samples ? 1 : 0;
    kv_tokens += fresh + item.context_tokens;
  }
  // A token's embedding is a look-up, and logits are made for sampled positions only.
  const double table = double{1} * model.vocab * model.hidden;
  ForwardCost cost;
  cost.flops =
      2 * (model.parameters_active - 2 * table) * tokens + 2 * table * samples + attention_flops;
  // Of experts, each token reads its own until all are read.
  const double weights = std::min(model.weight_bytes, model.active_weight_bytes() * tokens);
  cost.bytes = weights + kv_tokens * model.kv_bytes_per_token;
  return cost;
}

double forward_time_s(const ForwardModel& forward, std::span<const ScheduledWork> work) {
  if (const auto* rates = std::get_if<PlainRates>(&forward)) return plain_time_s(*rates, work);
  return profiled_time_s(std::get<ProfiledForward>(forward), work);
}

}  // namespace kvstream
