#include "tiers/throttled_tier.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "core/units.hpp"

namespace kvstream {
namespace {

std::string rate_text(std::uint64_t rate_bytes_per_s) {
  return rate_bytes_per_s == 0 ? "unlimited" : format_rate(static_cast<double>(rate_bytes_per_s));
}

}  // namespace

ThrottledTier::ThrottledTier(std::unique_ptr<Tier> inner_tier,
                             std::shared_ptr<ThrottleControl> control, const Clock& clock)
    : TierWrapper(std::move(inner_tier)),
      control_(std::move(control)),
      clock_(clock),
      traits_(inner().traits()) {
  traits_.addressable = false;
  // The limit is the device now: two tiers on one drive behind two limits do not share it.
  traits_.device_id = "throttle:" + traits_.name + "@" + traits_.device_id;
}

std::size_t ThrottledTier::room() const {
  return traits_.in_flight_max -
         std::min<std::size_t>(traits_.in_flight_max, due_.size() + held_.size());
}

template <class Op>
void ThrottledTier::reserve_turns(std::span<const Op> ops, Direction direction) {
  const Nanos now = clock_.now();
  const bool bypassed = control_->bypass() == Bypass::kOn;
  for (const Op& op : ops) {
    due_[op.id] =
        bypassed ? now : control_->reserve(direction, op.size_bytes, now) + control_->latency_ns();
  }
}

std::size_t ThrottledTier::submit_reads(std::span<const ReadOp> ops) {
  const auto offered = ops.first(std::min(ops.size(), room()));
  const std::size_t taken = inner().submit_reads(offered);
  reserve_turns(offered.first(taken), Direction::kRead);
  return taken;
}

std::size_t ThrottledTier::submit_writes(std::span<const WriteOp> ops) {
  const auto offered = ops.first(std::min(ops.size(), room()));
  const std::size_t taken = inner().submit_writes(offered);
  reserve_turns(offered.first(taken), Direction::kWrite);
  return taken;
}

void ThrottledTier::collect() {
  std::array<Completion, 64> batch;
  std::size_t count = 0;
  // Bounded: what is inside can only end, nothing is submitted meanwhile.
  do {
    count = inner().poll(batch);
    for (const Completion& done : std::span(batch).first(count)) {
      const auto turn = due_.extract(done.id);
      held_.push({turn ? turn.mapped() : 0, order_++, done});
    }
  } while (count == batch.size());
}

std::size_t ThrottledTier::poll(std::span<Completion> out) {
  collect();
  const Nanos now = clock_.now();
  const bool bypassed = control_->bypass() == Bypass::kOn;
  std::size_t count = 0;
  while (count < out.size() && !held_.empty() && (bypassed || held_.top().due <= now)) {
    out[count++] = held_.top().done;
    held_.pop();
  }
  return count;
}

Nanos ThrottledTier::next_event() const {
  const Nanos inside = inner().next_event();
  if (held_.empty()) return inside;
  return control_->bypass() == Bypass::kOn ? 0 : std::min(inside, held_.top().due);
}

TierReport ThrottledTier::report() const {
  TierReport report = inner().report();
  if (control_->bypass() == Bypass::kOn) {
    report.mode += "+throttled(bypassed)";
    return report;
  }
  const auto rates = control_->rates();
  report.mode += fmt::format(
      "+throttled({}, {}{})", rate_text(rates.read_bytes_per_s), rate_text(rates.write_bytes_per_s),
      control_->latency_ns() == 0 ? "" : ", " + format_duration(control_->latency_ns()));
  return report;
}

}  // namespace kvstream
