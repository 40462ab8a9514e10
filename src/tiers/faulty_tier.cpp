#include "tiers/faulty_tier.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace kvstream {
namespace {

constexpr std::byte kGarbage{0xDB};

/// Calls `change` on each run of the destination that lies in [begin, end) of the block.
template <class Change>
void for_range(std::span<const Span> into, std::size_t begin, std::size_t end, Change change) {
  std::size_t offset = 0;
  for (const Span& span : into) {
    const std::size_t from = std::max(begin, offset);
    const std::size_t to = std::min(end, offset + span.size_bytes);
    if (from < to) change(span.data + (from - offset), to - from);
    offset += span.size_bytes;
  }
}

double unit(std::mt19937_64& random) { return static_cast<double>(random() >> 11U) * 0x1.0p-53; }

}  // namespace

FaultyTier::FaultyTier(std::unique_ptr<Tier> inner_tier, FaultPlan plan, const Clock& clock)
    : TierWrapper(std::move(inner_tier)),
      plan_(std::move(plan)),
      clock_(clock),
      traits_(inner().traits()),
      random_(plan_.seed) {
  traits_.addressable = false;
  traits_.trusted = false;
}

void FaultyTier::set_plan(FaultPlan plan) {
  plan_ = std::move(plan);
  random_.seed(plan_.seed);
}

std::size_t FaultyTier::room() const {
  return traits_.in_flight_max -
         std::min<std::size_t>(traits_.in_flight_max, waiting_.size() + inside_.size());
}

FaultyTier::Draw FaultyTier::draw(const FaultPlan::Odds& odds) {
  const std::uint64_t op = ops_.load(std::memory_order_relaxed);
  for (const auto& scripted : plan_.script) {
    if (scripted.op == op) return {scripted.fault, scripted.duration_ns};
  }
  if (!chance_) chance_ = unit(random_);
  const double chance = *chance_;
  double edge = odds.error;
  if (chance < edge) return {Fault::kError, 0};
  if (chance < (edge += odds.short_transfer)) return {Fault::kShort, 0};
  if (chance < (edge += odds.flip)) return {Fault::kFlip, 0};
  if (chance < (edge += odds.delay)) return {Fault::kDelay, plan_.delay_ns};
  if (chance < edge + odds.stall) return {Fault::kStall, plan_.stall_ns};
  return {};
}

bool FaultyTier::pass_inside(const Flight& flight) {
  const std::size_t taken = flight.is_read ? inner().submit_reads({&flight.read, 1})
                                           : inner().submit_writes({&flight.write, 1});
  if (taken == 0) return false;
  inside_[flight.id()] = flight;
  return true;
}

bool FaultyTier::take(const Flight& offered) {
  Flight flight = offered;
  const Draw drawn = draw(flight.is_read ? plan_.reads : plan_.writes);
  flight.fault = drawn.fault;
  if (drawn.fault == Fault::kDelay || drawn.fault == Fault::kStall) {
    const Nanos now = clock_.now();
    const Nanos due = drawn.duration_ns > kNever - now ? kNever : now + drawn.duration_ns;
    waiting_.push({due, order_++, flight});
    ++(drawn.fault == Fault::kDelay ? delays_ : stalls_);
  } else if (!pass_inside(flight)) {
    return false;
  }
  chance_.reset();
  ++ops_;
  return true;
}

std::size_t FaultyTier::submit_reads(std::span<const ReadOp> ops) {
  const std::size_t limit = std::min(ops.size(), room());
  std::size_t taken = 0;
  while (taken < limit && take({.read = ops[taken], .write = {}, .is_read = true})) ++taken;
  return taken;
}

std::size_t FaultyTier::submit_writes(std::span<const WriteOp> ops) {
  const std::size_t limit = std::min(ops.size(), room());
  std::size_t taken = 0;
  while (taken < limit && take({.read = {}, .write = ops[taken], .is_read = false})) ++taken;
  return taken;
}

void FaultyTier::pass_due() {
  const Nanos now = clock_.now();
  refused_ = false;
  while (!waiting_.empty() && waiting_.top().due <= now) {
    refused_ = !pass_inside(waiting_.top().flight);
    if (refused_) return;
    waiting_.pop();
  }
}

Completion FaultyTier::spoil(const Flight& flight, Completion done) {
  if (done.code != Code::kOk) return done;
  const std::uint32_t size = done.size_bytes;
  switch (flight.fault) {
    case Fault::kError:
      ++errors_;
      return {done.id, Code::kIoError, 0};
    case Fault::kShort: {
      ++shorts_;
      const auto kept = static_cast<std::uint32_t>(size == 0 ? 0 : random_() % size);
      if (flight.is_read) {
        for_range(flight.read.into, kept, size, [](std::byte* data, std::size_t bytes) {
          std::memset(data, std::to_integer<int>(kGarbage), bytes);
        });
      }
      return {done.id, Code::kIoError, kept};
    }
    case Fault::kFlip: {
      if (!flight.is_read || size == 0) return done;
      ++flips_;
      const std::size_t at = random_() % size;
      const std::byte bit{static_cast<unsigned char>(1U << (random_() % 8))};
      for_range(flight.read.into, at, at + 1,
                [bit](std::byte* data, std::size_t) { *data ^= bit; });
      return done;
    }
    case Fault::kNone:
    case Fault::kDelay:
    case Fault::kStall:
      return done;
  }
  return done;
}

std::size_t FaultyTier::poll(std::span<Completion> out) {
  pass_due();
  const std::size_t count = inner().poll(out);
  for (Completion& done : out.first(count)) {
    const auto found = inside_.extract(done.id);
    if (found) done = spoil(found.mapped(), done);
  }
  return count;
}

Nanos FaultyTier::next_event() const {
  const Nanos next_inside = inner().next_event();
  // A due operation that the tier inside refused waits for one of its completions.
  if (waiting_.empty() || (refused_ && !inside_.empty())) return next_inside;
  return std::min(next_inside, waiting_.top().due);
}

void FaultyTier::release_stalled() {
  std::vector<Waiting> all;
  for (; !waiting_.empty(); waiting_.pop()) all.push_back(waiting_.top());
  for (Waiting& waiting : all) {
    waiting.due = 0;
    waiting_.push(waiting);
  }
}

TierReport FaultyTier::report() const {
  TierReport report = inner().report();
  report.errors += errors_ + shorts_;
  report.mode += "+faulty";
  return report;
}

FaultyTier::Counts FaultyTier::counts() const {
  return {ops_, errors_, shorts_, flips_, delays_, stalls_};
}

}  // namespace kvstream
