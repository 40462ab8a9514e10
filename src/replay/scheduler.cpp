#include "replay/scheduler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace kvstream {

Result<Scheduler> Scheduler::open(const SchedulerOptions& options,
                                  std::span<const TraceRequest> requests) {
  if (options.token_budget == 0 || options.sequences_max == 0) {
    return failure(Code::kInvalidArgument,
                   "a scheduler with no token budget or no sequences runs nothing; give both");
  }
  Result<DeviceKv> kv = DeviceKv::open(options.kv);
  if (!kv) return failure(kv.error());
  return Scheduler(options, requests, std::move(*kv));
}

Scheduler::Scheduler(const SchedulerOptions& options, std::span<const TraceRequest> requests,
                     DeviceKv kv)
    : options_(options), requests_(requests), kv_(std::move(kv)), sequences_(requests.size()) {}

Status Scheduler::arrive(RequestIndex request) {
  const TraceRequest& asked = requests_[request];
  const std::uint64_t block_tokens = options_.kv.block_tokens;
  const auto reject = [&](Code code, std::string message) {
    ++accounts_.rejected;
    return Status(code, std::move(message));
  };
  if (asked.input_tokens == 0 ||
      asked.keys.size() * block_tokens >= asked.input_tokens + block_tokens) {
    return reject(Code::kInvalidArgument,
                  fmt::format("request {} has {} tokens and {} keys of {} tokens; rejected",
                              request, asked.input_tokens, asked.keys.size(), block_tokens));
  }
  // The last output token's KV is never made.
  const std::uint64_t most =
      std::uint64_t{asked.input_tokens} + std::max(asked.output_tokens, 1U) - 1;
  if (DeviceKv::pages(most) > kv_.capacity_pages()) {
    return reject(Code::kNoSpace,
                  fmt::format("request {} needs KV for {} tokens and the device holds {}; rejected "
                              "(give more devices or KV space)",
                              request, most, kv_.capacity_pages() * DeviceKv::kPageTokens));
  }
  if (!options_.chunked_prefill && most > options_.token_budget) {
    return reject(Code::kNoSpace,
                  fmt::format("request {} may compute {} tokens at once and a step {}; rejected "
                              "(raise the token budget or allow chunked prefill)",
                              request, most, options_.token_budget));
  }
  sequences_[request].stage = Stage::kWaiting;
  waiting_.push_back(request);
  return Status::ok();
}

/// Prompt and outputs so far: what a request must have computed before it samples its next token.
std::uint32_t Scheduler::tokens(RequestIndex request) const {
  return requests_[request].input_tokens + sequences_[request].outputs;
}

/// A partial last block is never found on the device: its pages have no content that we can name.
std::span<const BlockKey> Scheduler::full_keys(RequestIndex request) const {
  const TraceRequest& asked = requests_[request];
  const std::size_t full = asked.input_tokens / options_.kv.block_tokens;
  return std::span(asked.keys).first(std::min(full, asked.keys.size()));
}

std::uint32_t Scheduler::tokens_in(RequestIndex request, std::uint32_t blocks) const {
  const std::uint64_t whole = std::uint64_t{blocks} * options_.kv.block_tokens;
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(requests_[request].input_tokens, whole));
}

const Batch& Scheduler::schedule(ExternalCache& external) {
  batch_.work.clear();
  batch_.loads.clear();
  batch_.preempted.clear();
  std::uint32_t budget = options_.token_budget;
  schedule_running(budget);
  // A step that preempts lets nobody in; one with nothing left to compute would be no step.
  if (!batch_.preempted.empty() && !batch_.work.empty()) return batch_;
  // Requests that are loaded but not running hold pages that no preemption of a running one gives
  // back. Where they keep everything from running, the last of them must let go.
  while (schedule_waiting(budget, external) == Admission::kStops && running_.empty() &&
         batch_.loads.empty() && loading_ == 0) {
    if (!drop_last_loaded()) break;
  }
  return batch_;
}

void Scheduler::schedule_running(std::uint32_t& budget) {
  for (std::size_t at = 0; at < running_.size() && budget > 0; ++at) {
    const RequestIndex request = running_[at];
    Sequence& sequence = sequences_[request];
    const std::uint32_t missing = tokens(request) - sequence.computed;
    while (!kv_.grow(sequence.hold, sequence.computed + std::min(missing, budget))) {
      const RequestIndex last = running_.back();
      running_.pop_back();
      preempt(last);
      waiting_.push_front(last);
      if (last == request) return;
    }
    run(request, budget);
  }
}

/// Lets requests in, first come first served. kStops: one could have run but for want of pages.
Scheduler::Admission Scheduler::schedule_waiting(std::uint32_t& budget, ExternalCache& external) {
  std::size_t at = 0;
  while (at < waiting_.size() && budget > 0 && running_.size() < options_.sequences_max) {
    const RequestIndex request = waiting_[at];
    const Admission admission = admit(request, budget, external);
    if (admission == Admission::kStops) return admission;
    if (admission == Admission::kRuns) {
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      ++at;
    }
  }
  return Admission::kPassedOver;
}

Scheduler::Admission Scheduler::admit(RequestIndex request, std::uint32_t& budget,
                                      ExternalCache& external) {
  Sequence& sequence = sequences_[request];
  if (sequence.stage == Stage::kLoading) return Admission::kPassedOver;
  const std::uint32_t wanted = tokens(request);
  if (sequence.stage == Stage::kLoaded) {
    const std::uint64_t held = sequence.hold.pages();
    const std::uint64_t all = std::max(held, DeviceKv::pages(wanted));
    if (all - held > kv_.free_pages() || !fits_step(wanted - sequence.computed, budget)) {
      return Admission::kStops;
    }
    return start(request, budget);
  }

  Found found;
  const std::span<const BlockKey> keys = full_keys(request);
  found.device_blocks = kv_.find(keys);
  const std::span<const BlockKey> there = keys.first(found.device_blocks);
  const std::uint64_t shared =
      found.device_blocks * std::uint64_t{options_.kv.block_tokens} / DeviceKv::kPageTokens;
  const std::uint64_t taken = DeviceKv::pages(wanted) - shared + kv_.idle_pages_of(there);
  if (taken > kv_.free_pages()) return Admission::kStops;

  // The token that is sampled from must be computed; the device's cache ends at a whole page.
  const std::uint32_t cut = (wanted - 1) / DeviceKv::kPageTokens * DeviceKv::kPageTokens;
  found.device_tokens = std::min(tokens_in(request, found.device_blocks), cut);
  found.blocks = found.device_blocks;
  found.computed = found.device_tokens;
  const auto known = static_cast<std::uint32_t>(requests_[request].keys.size());
  if (sequence.asks_external && known > found.device_blocks) {
    const ExternalCache::Answer answer = external.matched(request, found.device_blocks);
    if (answer.pending) return Admission::kPassedOver;
    if (answer.blocks > found.device_blocks) {
      found.blocks = std::min(answer.blocks, known);
      found.computed = std::min(tokens_in(request, found.blocks), wanted - 1);
    }
  }
  return admit_found(request, found, budget);
}

/// With pages for all its tokens known to be free.
Scheduler::Admission Scheduler::admit_found(RequestIndex request, const Found& found,
                                            std::uint32_t& budget) {
  Sequence& sequence = sequences_[request];
  const bool loads = found.blocks > found.device_blocks;
  const bool aside = loads && options_.load_mode == LoadMode::kAsync;
  const std::span<const BlockKey> there = full_keys(request).first(found.device_blocks);
  if (aside) {
    // What waits aside is not preempted, so they may not keep each other from running.
    const std::uint64_t shared =
        found.device_blocks * std::uint64_t{options_.kv.block_tokens} / DeviceKv::kPageTokens;
    const std::uint64_t taken =
        DeviceKv::pages(tokens_in(request, found.blocks)) - shared + kv_.idle_pages_of(there);
    if (taken + reserved_pages() > kv_.free_pages()) return Admission::kStops;
  } else if (!fits_step(tokens(request) - found.computed, budget)) {
    return Admission::kStops;
  }

  if (!sequence.counted) accounts_.prompt += requests_[request].input_tokens;
  sequence.counted = true;
  kv_.share(sequence.hold, there);
  accounts_.cached_device += found.device_tokens;
  sequence.device_tokens = found.device_tokens;
  sequence.known_blocks = found.blocks;
  sequence.load = {request, found.device_blocks, found.blocks - found.device_blocks};
  sequence.usable_blocks = 0;
  sequence.fresh = true;
  if (loads) batch_.loads.push_back(sequence.load);
  if (!aside) {
    sequence.computed = found.computed;
    return start(request, budget);
  }
  sequence.computed = found.device_tokens;
  sequence.stage = Stage::kLoading;
  ++loading_;
  // Cannot fail: fewer pages than the request's tokens need, and those are free.
  std::ignore = kv_.grow(sequence.hold, tokens_in(request, found.blocks));
  return Admission::kAside;
}

Scheduler::Admission Scheduler::start(RequestIndex request, std::uint32_t& budget) {
  Sequence& sequence = sequences_[request];
  const std::uint32_t missing = tokens(request) - sequence.computed;
  std::ignore = kv_.grow(sequence.hold, sequence.computed + std::min(missing, budget));
  sequence.stage = Stage::kRunning;
  running_.push_back(request);
  run(request, budget);
  return Admission::kRuns;
}

bool Scheduler::fits_step(std::uint32_t missing_tokens, std::uint32_t budget) const {
  return options_.chunked_prefill || missing_tokens <= budget;
}

/// Puts a request whose pages are there into the batch.
void Scheduler::run(RequestIndex request, std::uint32_t& budget) {
  const Sequence& sequence = sequences_[request];
  const std::uint32_t missing = tokens(request) - sequence.computed;
  const std::uint32_t now = std::min(missing, budget);
  batch_.work.push_back({request, now, sequence.computed, now == missing});
  budget -= now;
  publish(request, sequence.computed + now);
}

/// Makes findable what the first `tokens` of a request fill.
void Scheduler::publish(RequestIndex request, std::uint32_t tokens) {
  DeviceKv::Hold& hold = sequences_[request].hold;
  const std::span<const BlockKey> keys = full_keys(request);
  const std::size_t full = std::min<std::size_t>(keys.size(), tokens / options_.kv.block_tokens);
  while (hold.blocks.size() < full) kv_.publish(hold, keys[hold.blocks.size()]);
}

/// Pages that requests aside still need for the tokens they have. (A running prefill that is not
/// through has used up the step's budget, so that nobody is let in beside it.)
std::uint64_t Scheduler::reserved_pages() const {
  std::uint64_t sum = 0;
  for (const RequestIndex request : waiting_) {
    const Sequence& sequence = sequences_[request];
    if (sequence.stage != Stage::kLoading && sequence.stage != Stage::kLoaded) continue;
    const std::uint64_t all = DeviceKv::pages(tokens(request));
    sum += all - std::min(all, sequence.hold.pages());
  }
  return sum;
}

void Scheduler::preempt(RequestIndex request) {
  Sequence& sequence = sequences_[request];
  accounts_.lost_to_preemption += std::min(sequence.computed, requests_[request].input_tokens);
  ++accounts_.preemptions;
  batch_.preempted.push_back(request);
  kv_.release(sequence.hold);
  sequence.computed = 0;
  sequence.asks_external = true;
  sequence.stage = Stage::kWaiting;
}

bool Scheduler::drop_last_loaded() {
  const auto last = std::find_if(waiting_.rbegin(), waiting_.rend(), [this](RequestIndex request) {
    return sequences_[request].stage == Stage::kLoaded;
  });
  if (last == waiting_.rend()) return false;
  preempt(*last);  // and it keeps its place: it never ran
  return true;
}

void Scheduler::loaded(RequestIndex request, std::uint32_t usable_blocks) {
  Sequence& sequence = sequences_[request];
  sequence.usable_blocks = std::min(usable_blocks, sequence.load.count);
  if (sequence.stage != Stage::kLoading) return;  // sync: counted when the pass is over

  --loading_;
  const std::uint32_t blocks = sequence.load.first_block + sequence.usable_blocks;
  sequence.known_blocks = blocks;
  sequence.computed = std::min(tokens_in(request, blocks), tokens(request) - 1);
  accounts_.cached += sequence.computed - sequence.device_tokens;
  publish(request, tokens_in(request, blocks));
  sequence.load.count = 0;
  if (sequence.computed > 0) {
    sequence.stage = Stage::kLoaded;
    return;
  }
  // Nothing came and nothing was there: it is admitted once more, and computes.
  kv_.release(sequence.hold);
  sequence.asks_external = false;
  sequence.stage = Stage::kWaiting;
}

const Ended& Scheduler::forward_ended() {
  ended_.first_token.clear();
  ended_.finished.clear();
  ended_.computed.clear();
  if (options_.load_mode == LoadMode::kSync && !batch_.loads.empty()) settle_loads();
  for (const ScheduledWork& work : batch_.work) advance(work);
  if (!ended_.finished.empty()) {
    std::erase_if(running_, [this](RequestIndex request) {
      return sequences_[request].stage == Stage::kFinished;
    });
  }
  batch_.work.clear();
  batch_.loads.clear();
  return ended_;
}

/// Sync loads that failed void the pass for their requests, and for those that were admitted in
/// the same step behind them and share what was not loaded.
void Scheduler::settle_loads() {
  for (std::size_t at = 0; at < batch_.work.size(); ++at) {
    Sequence& sequence = sequences_[batch_.work[at].request];
    if (!sequence.fresh) continue;
    if (sequence.usable_blocks < sequence.load.count) {
      sequence.valid_blocks = sequence.load.first_block + sequence.usable_blocks;
    }
    for (std::size_t before = 0; before < at; ++before) {
      const Sequence& other = sequences_[batch_.work[before].request];
      sequence.valid_blocks = std::min(sequence.valid_blocks, valid_beside(sequence, other));
    }
    if (sequence.valid_blocks == kNoLimit) {
      accounts_.cached += batch_.work[at].context_tokens - sequence.device_tokens;
    }
  }
}

/// The first block of `sequence` that is one of those which `other` has but not validly.
std::uint32_t Scheduler::valid_beside(const Sequence& sequence, const Sequence& other) {
  const std::size_t common = std::min(sequence.hold.blocks.size(), other.hold.blocks.size());
  for (std::size_t block = other.valid_blocks; block < common; ++block) {
    const std::uint32_t slot = sequence.hold.blocks[block];
    if (slot != DeviceKv::kLoose && slot == other.hold.blocks[block]) {
      return static_cast<std::uint32_t>(block);
    }
  }
  return kNoLimit;
}

void Scheduler::advance(const ScheduledWork& work) {
  const RequestIndex request = work.request;
  Sequence& sequence = sequences_[request];
  sequence.fresh = false;
  if (sequence.valid_blocks != kNoLimit) {
    fall_back(work);
    return;
  }
  const std::uint32_t prompt = requests_[request].input_tokens;
  const std::uint32_t end = sequence.computed + work.new_tokens;
  const std::uint32_t prompt_end = std::clamp(prompt, sequence.computed, end);
  accounts_.computed += prompt_end - sequence.computed;
  accounts_.recomputed_output += std::clamp(sequence.computed_max, prompt_end, end) - prompt_end;
  sequence.computed = end;
  sequence.computed_max = std::max(sequence.computed_max, end);
  report_whole_blocks(request);
  if (!work.samples) return;

  ++accounts_.output;
  if (++sequence.outputs == 1) ended_.first_token.push_back(request);
  if (sequence.outputs < requests_[request].output_tokens) return;
  ++accounts_.finished;
  ended_.finished.push_back(request);
  sequence.stage = Stage::kFinished;
  kv_.release(sequence.hold);
  sequence.hold = {};
}

/// Back to what is valid; the rest is computed in the next steps.
void Scheduler::fall_back(const ScheduledWork& work) {
  Sequence& sequence = sequences_[work.request];
  const std::uint32_t valid = std::exchange(sequence.valid_blocks, kNoLimit);
  sequence.computed = std::min(tokens_in(work.request, valid), work.context_tokens);
  if (sequence.computed < sequence.device_tokens) {
    accounts_.cached_device -= sequence.device_tokens - sequence.computed;
  } else {
    accounts_.cached += sequence.computed - sequence.device_tokens;
  }
  accounts_.discarded += work.new_tokens;
  sequence.known_blocks = std::min(sequence.known_blocks, valid);
  kv_.retract(sequence.hold, valid);
}

void Scheduler::report_whole_blocks(RequestIndex request) {
  Sequence& sequence = sequences_[request];
  const TraceRequest& asked = requests_[request];
  const auto keys = static_cast<std::uint32_t>(asked.keys.size());
  std::uint32_t whole = std::min(sequence.computed / options_.kv.block_tokens, keys);
  if (sequence.computed >= asked.input_tokens) whole = keys;
  if (whole <= sequence.known_blocks) return;
  ended_.computed.push_back({request, sequence.known_blocks, whole - sequence.known_blocks});
  sequence.known_blocks = whole;
}

}  // namespace kvstream
