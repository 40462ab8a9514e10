#include "replay/loop.hpp"

#include <absl/container/flat_hash_set.h>

#include <algorithm>
#include <thread>

#include "replay/contents.hpp"
#include "replay/payload.hpp"
#include "replay/proc_stats.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kAlignment = 4096;
constexpr Nanos kSlice_ns = 100 * kMillisecond;  // how soon a signal is noticed
constexpr Nanos kRest_ns = 120 * kSecond;
constexpr Nanos kWaitedSave_ns = 300 * kSecond;

std::uint64_t aligned(std::uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::uint64_t laid_out_bytes(const TraceRequest& request) {
  std::uint64_t sum = 0;
  for (const std::uint32_t size : request.sizes_bytes) sum += aligned(size);
  return sum;
}

double seconds(Nanos duration) { return static_cast<double>(duration) * 1e-9; }
Nanos nanos(double duration_s) { return static_cast<Nanos>(duration_s * 1e9); }

}  // namespace

/// Where each block of a step lies, and what became of it.
struct ReplayLoop::Step {
  std::span<const TraceRequest> requests;
  StepMemory::Buffer* buffer = nullptr;
  std::vector<std::vector<Span>> places;  ///< one a block of each request
  std::vector<LookupAnswer> answers;
  std::vector<std::uint32_t> usable;  ///< leading blocks that were loaded
  Nanos admitted_at = 0;              ///< elapsed()
  std::uint64_t computed_tokens = 0, output_tokens = 0;
  bool drained = true;  ///< when the load had ended: looked at once, so that all agree on it

  /// No device can still write into the block's place: a late read must not get into what is saved.
  bool is_ours(std::size_t request, std::size_t block) const {
    if (!buffer->load || drained) return true;
    const auto& outcomes = buffer->load->result().requests[request].blocks;
    if (block >= outcomes.size()) return true;
    const BlockState state = outcomes[block].state;
    return state == BlockState::kHit || state == BlockState::kMiss;
  }
};

std::uint64_t largest_step_bytes(std::span<const TraceRequest> requests, std::uint32_t batch) {
  std::uint64_t window = 0, largest = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    window += laid_out_bytes(requests[i]);
    if (i >= batch) window -= laid_out_bytes(requests[i - batch]);
    largest = std::max(largest, window);
  }
  return largest;
}

Result<std::unique_ptr<ReplayLoop>> ReplayLoop::open(Engine& engine,
                                                     std::span<const TraceRequest> requests,
                                                     const LoopOptions& options) {
  std::unique_ptr<ReplayLoop> loop(new ReplayLoop(engine, requests, options));
  const std::uint64_t bytes =
      std::max<std::uint64_t>(kAlignment, largest_step_bytes(requests, options.batch));
  auto memory = StepMemory::open(engine, *options.clock, bytes);
  if (!memory) return failure(memory.error());
  loop->memory_ = std::move(*memory);
  return loop;
}

Nanos ReplayLoop::elapsed() const { return options_.clock->now() - run_.started_at - excluded_; }

Result<RankRun> ReplayLoop::play(const Mode& mode,
                                 const std::function<void(std::uint32_t)>& on_progress) {
  mode_ = mode;
  run_ = {};
  excluded_ = 0;
  open_saves_.clear();
  if (Status status = engine_.set_mode(mode); !status.is_ok()) return failure(status);
  engine_.take_step_records();
  run_.before = engine_.stats();
  run_.started_at = options_.clock->now();
  std::size_t next = 0;
  while (next < requests_.size() && !stopped()) {
    const std::size_t count = admit(next);
    if (count == 0) continue;
    if (Status status = run_step(requests_.subspan(next, count)); !status.is_ok()) {
      return failure(status);
    }
    next += count;
    if (on_progress) on_progress(static_cast<std::uint32_t>(next));
  }
  run_.interrupted = stopped();
  if (mode_.writes != WriteTiming::kDeferred) {
    if (Status status = settle_all(); !status.is_ok()) return failure(status);
  }
  open_saves_.clear();
  run_.ended_at = options_.clock->now();
  run_.elapsed_s = seconds(elapsed());
  run_.excluded_s = seconds(excluded_);
  run_.at_rest = wait_at_rest(engine_, *options_.clock, run_.ended_at + kRest_ns);
  run_.after = engine_.stats();
  run_.records = engine_.take_step_records();
  return std::move(run_);
}

/// How many requests from `next` on make the next step; 0 after waiting for the next arrival.
std::size_t ReplayLoop::admit(std::size_t next) {
  const std::size_t limit = std::min<std::size_t>(options_.batch, requests_.size() - next);
  if (options_.arrivals == Arrivals::kClosed) return limit;
  const auto arrival = [&](std::size_t i) {
    return nanos(seconds(requests_[i].arrival_ns) * options_.time_scale);
  };
  const Nanos now = elapsed();
  std::size_t count = 0;
  while (count < limit && arrival(next + count) <= now) ++count;
  if (count == 0) {
    pass_until(options_.clock->now() + std::min(kSlice_ns, arrival(next) - now));
    run_.idle_s += seconds(elapsed() - now);
  }
  return count;
}

void ReplayLoop::pass_until(Nanos when) {
  for (Nanos now = options_.clock->now(); now < when && !stopped(); now = options_.clock->now()) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(when - now, kSlice_ns)));
  }
}

Status ReplayLoop::run_step(std::span<const TraceRequest> batch) {
  Step step;
  step.requests = batch;
  if (mode_.writes == WriteTiming::kAfterForward) {
    if (Status status = settle_all(); !status.is_ok()) return status;
  }
  auto buffer = memory_->acquire(options_.clock->now() + options_.step_deadline_ns);
  if (!buffer) return buffer.error();
  step.buffer = *buffer;
  std::byte* at = step.buffer->memory.span().data;
  step.places.resize(batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    for (const std::uint32_t size : batch[i].sizes_bytes) {
      step.places[i].push_back({at, size});
      at += aligned(size);
    }
  }
  step.usable.assign(batch.size(), 0);
  step.admitted_at = elapsed();
  if (!mode_.no_cache) {
    look_up(step);
    if (Status status = load(step); !status.is_ok()) return status;
  }
  if (Status status = forward(step); !status.is_ok()) return status;
  run_.requests += static_cast<std::uint32_t>(batch.size());
  ++run_.steps;
  return Status::ok();
}

void ReplayLoop::look_up(Step& step) {
  std::vector<LookupRequest> asked;
  for (const auto& request : step.requests) {
    asked.push_back({request.keys});
    run_.blocks_asked += request.keys.size();
  }
  step.answers = engine_.lookup(asked);
  // A directory answer that is still out is worth a short wait, no more.
  const Nanos give_up = options_.clock->now() + 50 * kMillisecond;
  for (std::size_t i = 0; i < step.answers.size(); ++i) {
    while (step.answers[i].pending && options_.clock->now() < give_up) {
      pass_until(options_.clock->now() + kMillisecond);
      step.answers[i] = engine_.lookup(std::span(&asked[i], 1)).front();
    }
  }
}

Status ReplayLoop::load(Step& step) {
  std::vector<std::vector<BlockRequest>> blocks(step.requests.size());
  std::vector<LoadRequest> loads;
  std::uint64_t count = 0;
  for (std::size_t i = 0; i < step.requests.size(); ++i) {
    for (std::uint32_t b = 0; b < step.answers[i].blocks; ++b) {
      blocks[i].push_back({step.requests[i].keys[b], step.requests[i].sizes_bytes[b],
                           std::span<const Span>(&step.places[i][b], 1)});
    }
    count += blocks[i].size();
    loads.push_back({blocks[i], step.answers[i].lease});
  }
  if (count == 0) {
    for (const auto& answer : step.answers) engine_.release(answer.lease);
    return Status::ok();
  }
  const Nanos begun = options_.clock->now();
  const Nanos deadline = begun + options_.step_deadline_ns;
  auto ticket = engine_.load_step({loads, deadline});
  if (!ticket) {
    for (const auto& answer : step.answers) engine_.release(answer.lease);
    return ticket.error();
  }
  step.buffer->load = *ticket;
  // The engine itself ends a step at its deadline; the grace covers its timer.
  const Nanos give_up = deadline + 5 * kSecond;
  while (!(*ticket)->wait_until(std::min(give_up, options_.clock->now() + kSlice_ns))) {
    const Nanos now = options_.clock->now();
    if (stopped() || now >= give_up) {
      if (Status status = engine_.cancel(*ticket, now + 5 * kSecond); !status.is_ok())
        return status;
      if (now >= give_up) return {Code::kTimedOut, "a step did not end at its deadline"};
    }
  }
  run_.read_wait_s += seconds(options_.clock->now() - begun);
  step.drained = (*ticket)->drained();
  count_load(step);
  return Status::ok();
}

void ReplayLoop::count_load(Step& step) {
  const StepResult& result = step.buffer->load->result();
  run_.step_read_s.push_back(seconds(result.ended_at - result.submitted_at));
  for (std::size_t i = 0; i < result.requests.size(); ++i) {
    step.usable[i] = result.requests[i].usable_blocks;
    run_.usable_blocks += step.usable[i];
    for (const BlockOutcome& block : result.requests[i].blocks) {
      run_.hits += block.state == BlockState::kHit;
      run_.misses += block.state == BlockState::kMiss;
      run_.late += block.state == BlockState::kLate;
      run_.cancelled += block.state == BlockState::kCancelled;
    }
  }
}

/// The forward pass is a timer. What this program does on the CPU for its own sake (verify what
/// was read, make what is saved) runs inside it, and only what takes longer is left out of time.
Status ReplayLoop::forward(Step& step) {
  for (std::size_t i = 0; i < step.requests.size(); ++i) {
    const TraceRequest& request = step.requests[i];
    const std::uint64_t cached = options_.shape.tokens_in(step.usable[i], request.input_tokens);
    run_.prompt_tokens += request.input_tokens;
    run_.cached_tokens += cached;
    step.computed_tokens += request.input_tokens - cached;
    step.output_tokens += request.output_tokens;
  }
  run_.computed_tokens += step.computed_tokens;
  run_.output_tokens += step.output_tokens;
  const Nanos prefill =
      nanos(static_cast<double>(step.computed_tokens) / options_.prefill_tokens_per_s);
  const Nanos decode =
      nanos(static_cast<double>(step.output_tokens) / options_.decode_tokens_per_s);
  const bool saves_inline = mode_.writes == WriteTiming::kInline;

  const Nanos begun = options_.clock->now();
  if (options_.verify == Verify::kOn) verify(step);
  fill(step);
  // Inline saves need the payloads at the end of the prefill, the others at the end of it all.
  const Nanos covered = begun + prefill + (saves_inline ? 0 : decode);
  excluded_ += std::max<Nanos>(0, options_.clock->now() - covered);
  pass_until(covered);
  if (saves_inline) {
    if (Status status = save_and_wait(step); !status.is_ok()) return status;
    pass_until(options_.clock->now() + decode);
  }
  run_.forward_s += seconds(prefill + decode);
  const Nanos end = elapsed();
  for (const auto& request : step.requests) {
    const Nanos arrived = options_.arrivals == Arrivals::kClosed
                              ? step.admitted_at
                              : nanos(seconds(request.arrival_ns) * options_.time_scale);
    run_.e2e_s.push_back(seconds(end - arrived));
    run_.ttft_s.push_back(seconds(end - decode - arrived));
  }
  return saves_inline ? Status::ok() : save(step);
}

void ReplayLoop::verify(Step& step) {
  const double before_s = thread_cpu_s();
  if (step.buffer->load) {
    const StepResult& result = step.buffer->load->result();
    for (std::size_t i = 0; i < result.requests.size(); ++i) {
      for (std::size_t b = 0; b < result.requests[i].blocks.size(); ++b) {
        if (result.requests[i].blocks[b].state != BlockState::kHit) continue;
        const Span place = step.places[i][b];
        run_.wrong_bytes +=
            count_wrong_bytes(step.requests[i].keys[b], {place.data, place.size_bytes});
        run_.bytes_verified += place.size_bytes;
      }
    }
  }
  run_.verify_cpu_s += thread_cpu_s() - before_s;
}

void ReplayLoop::fill(Step& step) {
  if (mode_.no_cache || mode_.replication == Replication::kNone) return;
  const double before_s = thread_cpu_s();
  for (std::size_t i = 0; i < step.requests.size(); ++i) {
    for (std::size_t b = step.usable[i]; b < step.requests[i].keys.size(); ++b) {
      const Span place = step.places[i][b];
      if (step.is_ours(i, b))
        fill_payload(step.requests[i].keys[b], {place.data, place.size_bytes});
    }
  }
  run_.fill_cpu_s += thread_cpu_s() - before_s;
}

/// Offers what this step computed, each key once; what is waited for goes in parts that fit the
/// engine's queue.
Status ReplayLoop::save(Step& step) {
  if (mode_.no_cache || mode_.replication == Replication::kNone) return Status::ok();
  absl::flat_hash_set<BlockKey> seen;
  std::vector<SaveBlock> blocks;
  std::vector<ConstSpan> spans;
  for (std::size_t i = 0; i < step.requests.size(); ++i) {
    const auto& keys = step.requests[i].keys;
    for (std::size_t b = step.usable[i]; b < keys.size(); ++b) {
      if (!step.is_ours(i, b) || !seen.insert(keys[b]).second) continue;
      const Span place = step.places[i][b];
      spans.push_back({place.data, place.size_bytes});
      blocks.push_back({keys[b],
                        static_cast<std::uint32_t>(place.size_bytes),
                        {},
                        static_cast<std::uint32_t>(b)});
    }
  }
  if (blocks.empty()) return Status::ok();
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].from = {&spans[i], 1};
  return mode_.writes == WriteTiming::kDeferred ? offer(step, blocks)
                                                : offer_in_parts(step, blocks);
}

Status ReplayLoop::offer(Step& step, std::span<const SaveBlock> blocks) {
  step.buffer->save = engine_.save_step({blocks, 0});
  if (mode_.writes != WriteTiming::kDeferred) open_saves_.push_back(step.buffer->save);
  return Status::ok();
}

/// Two parts are under way at a time, so that the devices never run dry between them.
Status ReplayLoop::offer_in_parts(Step& step, std::span<const SaveBlock> blocks) {
  const std::size_t part =
      std::max<std::size_t>(1, options_.waited_save_bytes / 2 / options_.shape.block_bytes_max());
  for (std::size_t at = 0; at < blocks.size(); at += part) {
    if (open_saves_.size() >= 2) {
      const SaveTicket oldest = open_saves_[open_saves_.size() - 2];
      if (Status status = settle_waited(oldest); !status.is_ok()) return status;
    }
    const auto some = blocks.subspan(at, std::min(part, blocks.size() - at));
    if (Status status = offer(step, some); !status.is_ok()) return status;
  }
  return Status::ok();
}

Status ReplayLoop::save_and_wait(Step& step) {
  if (Status status = save(step); !status.is_ok()) return status;
  return settle_all();
}

Status ReplayLoop::settle_all() {
  for (const auto& ticket : open_saves_) {
    if (Status status = settle_waited(ticket); !status.is_ok()) return status;
  }
  open_saves_.clear();
  return Status::ok();
}

Status ReplayLoop::settle_waited(const SaveTicket& ticket) {
  const Nanos begun = options_.clock->now();
  const Nanos give_up = begun + kWaitedSave_ns;
  while (!ticket->wait_done(std::min(give_up, options_.clock->now() + kSlice_ns))) {
    if (stopped()) break;
    if (options_.clock->now() >= give_up) {
      return {Code::kTimedOut, "a save did not end within 300 s"};
    }
  }
  run_.write_wait_s += seconds(options_.clock->now() - begun);
  return Status::ok();
}

}  // namespace kvstream
