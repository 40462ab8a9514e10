#include <poll.h>

#include <algorithm>

#include "engine/engine_impl.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kProbes = 3;
constexpr Nanos kProbeAtOpenMax = kSecond;  ///< for all tiers together

}  // namespace

bool EngineImpl::probing() const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [](const auto& seat) { return seat.probe.target.has_value(); });
}

bool EngineImpl::start_probe(std::uint8_t tier, Nanos now) {
  TierSeat& seat = seats_[tier];
  LatencyProbe& probe = seat.probe;
  if (probe.done >= kProbes || probe.target || seat.tier->traits().addressable ||
      seat.device->reads_in_flight() + seat.device->writes_in_flight() > 0) {
    return false;
  }
  probe.slab = read_slabs_->take();
  if (probe.slab == nullptr) return false;
  probe.target = catalog_->sample_and_hold(tier);
  if (probe.target) {
    const auto alignment = std::max(1U, seat.tier->traits().alignment_bytes);
    const auto size = probe.target->replica.size_bytes;
    probe.into = {probe.slab, (size + alignment - 1) / alignment * alignment};
    const ReadOp op{kProbeId, probe.target->replica.at, size, {&probe.into, 1}};
    if (seat.tier->submit_reads({&op, 1}) == 1) {
      probe.submitted_at = now;
      seat.device->on_submit(Device::Kind::kRead, size, now);
      return true;
    }
    catalog_->unhold(probe.target->key, probe.target->replica);
    probe.target.reset();
  }
  read_slabs_->give(probe.slab);
  return false;
}

void EngineImpl::on_probe_complete(std::uint8_t tier, const Completion& done, Nanos now) {
  TierSeat& seat = seats_[tier];
  LatencyProbe& probe = seat.probe;
  seat.device->on_complete(Device::Kind::kRead, probe.target->replica.size_bytes,
                           probe.submitted_at, done.code == Code::kOk, now);
  catalog_->unhold(probe.target->key, probe.target->replica);
  probe.target.reset();
  read_slabs_->give(probe.slab);
  ++probe.done;
}

void EngineImpl::probe_at_open() {
  const Nanos deadline = clock_.now() + kProbeAtOpenMax;
  for (std::uint8_t tier = 0; tier < seats_.size(); ++tier) {
    TierSeat& seat = seats_[tier];
    while (clock_.now() < deadline && start_probe(tier, clock_.now())) {
      while (seat.probe.target && clock_.now() < deadline) {
        Completion done;
        if (seat.tier->poll({&done, 1}) == 1) {
          on_probe_complete(tier, done, clock_.now());
          continue;
        }
        pollfd fd{seat.tier->wait_fd(), POLLIN, 0};
        const Nanos next = std::min(seat.tier->next_event(), clock_.now() + 10 * kMillisecond);
        const Nanos left = std::max<Nanos>(next - clock_.now(), 0);
        const timespec nap{left / kSecond, left % kSecond};
        ::ppoll(&fd, fd.fd >= 0 ? 1 : 0, &nap, nullptr);
      }
    }
  }
}

void EngineImpl::probe_when_idle(Nanos now) {
  if (!dispatcher_->idle() || !pump_->idle()) return;
  for (std::uint8_t tier = 0; tier < seats_.size(); ++tier) {
    // A device that several tiers share carries one probe at a time: start_probe sees to it.
    if (start_probe(tier, now)) return;
  }
}

}  // namespace kvstream
