// How long one forward pass of the engine takes. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <variant>

#include "replay/device_profile.hpp"
#include "replay/model_profile.hpp"

namespace kvstream {

/// What one request has computed in one forward pass.
struct ScheduledWork {
  std::uint32_t request = 0;         ///< RequestIndex
  std::uint32_t new_tokens = 0;      ///< computed in this pass
  std::uint32_t context_tokens = 0;  ///< whose KV was there before it
  bool samples = false;              ///< the pass yields an output token of this request
};

/// Rates that hold whatever the context: a token of a request that computes one is decode, any
/// other prefill, and the two add up.
struct PlainRates {
  double prefill_tokens_per_s = 400'000;
  double decode_tokens_per_s = 60'000;
};

/// The larger of arithmetic and memory traffic, as a roofline has it, plus a fixed part.
struct ProfiledForward {
  ModelProfile model;
  DeviceGroup devices;
  double overhead_s = 0;  ///< of every pass: launches, scheduling, sampling
};

using ForwardModel = std::variant<PlainRates, ProfiledForward>;

/// What a pass does, before it is divided by rates.
struct ForwardCost {
  double flops = 0;
  double bytes = 0;  ///< of device memory: weights once, and every request's KV once
};

ForwardCost forward_cost(const ModelProfile& model, std::span<const ScheduledWork> work);

/// Seconds. 0 for no work.
double forward_time_s(const ForwardModel& forward, std::span<const ScheduledWork> work);

}  // namespace kvstream
