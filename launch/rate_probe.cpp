#include "launch/rate_probe.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <span>

#include "core/checksum.hpp"
#include "engine/threaded_tier.hpp"
#include "launch/temporary_folder.hpp"
#include "replay/random.hpp"
#include "tiers/throttled_tier.hpp"

namespace kvstream {
namespace {

constexpr std::size_t kAlignment = 4096;
constexpr double kBlockSeconds = 2e-3;
constexpr std::uint64_t kBlockMin = 16U << 10U, kBlockMax = 4U << 20U;
constexpr std::uint64_t kProbeBytes = 32U << 20U;
constexpr std::uint32_t kInFlightMin = 16, kInFlightMax = 48, kBlocksMax = 64;
constexpr std::uint32_t kCapFactor = 4;  ///< segments, logs and slack beside the blocks
constexpr Nanos kWriteMax = 30 * kSecond;
constexpr int kChoresMax = 1000;

struct FreeMemory {
  void operator()(std::byte* data) const { std::free(data); }
};

Result<SlotRef> reserve(Tier& tier, std::uint32_t size_bytes) {
  auto slot = tier.reserve(size_bytes);
  for (int i = 0; i < kChoresMax && !slot && slot.error().code() == Code::kOverloaded; ++i) {
    if (Status status = tier.chore(); !status.is_ok()) return failure(status);
    slot = tier.reserve(size_bytes);
  }
  return slot;
}

Status write_one(Tier& tier, const WriteOp& op, const Clock& clock) {
  const Nanos until = clock.now() + kWriteMax;
  bool taken = false;
  std::array<Completion, 1> done;
  while (clock.now() < until) {
    taken = taken || tier.submit_writes({&op, 1}) == 1;
    if (tier.poll(done) == 1) {
      if (done[0].code == Code::kOk) return Status::ok();
      return {done[0].code, fmt::format("failed to write a block of {} B to tier {}", op.size_bytes,
                                        tier.traits().name)};
    }
    pollfd fd{tier.wait_fd(), POLLIN, 0};
    ::poll(&fd, fd.fd >= 0 ? 1 : 0, tier.next_event() <= clock.now() ? 0 : 1);
  }
  return {Code::kTimedOut, fmt::format("tier {} took more than 30 s to write a block of {} B",
                                       tier.traits().name, op.size_bytes)};
}

Status write_blocks(RateProbe& probe, const ProbeShape& shape, const Clock& clock) {
  const std::unique_ptr<std::byte, FreeMemory> bytes(
      static_cast<std::byte*>(std::aligned_alloc(kAlignment, shape.block_bytes)));
  if (!bytes) return {Code::kOverloaded, "no memory for a block"};
  const std::span words(reinterpret_cast<std::uint64_t*>(bytes.get()), shape.block_bytes / 8);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = mix64(i);
  for (std::uint64_t i = 0; i < shape.blocks; ++i) {
    auto slot = reserve(*probe.tier, shape.block_bytes);
    if (!slot) return slot.error();
    WriteOp op;
    op.id = i;
    op.key = {};
    words[0] = mix64(i);
    std::memcpy(op.key.bytes.data(), words.data(), sizeof(std::uint64_t));
    op.at = *slot;
    op.size_bytes = shape.block_bytes;
    op.checksum = checksum({bytes.get(), shape.block_bytes});
    op.from = bytes.get();
    if (Status status = write_one(*probe.tier, op, clock); !status.is_ok()) return status;
    probe.slots.push_back({*slot, shape.block_bytes});
  }
  return Status::ok();
}

}  // namespace

ProbeShape probe_shape(std::uint64_t read_bytes_per_s, Nanos latency_ns) {
  const auto rate = static_cast<double>(read_bytes_per_s);
  const double hidden_bytes = 2 * rate * static_cast<double>(latency_ns) * 1e-9;
  const double wanted =
      std::max(rate * kBlockSeconds, hidden_bytes / (kInFlightMax - kInFlightMin));
  const auto block = static_cast<std::uint64_t>(
      std::clamp(wanted, static_cast<double>(kBlockMin), static_cast<double>(kBlockMax)));
  ProbeShape shape;
  shape.block_bytes = static_cast<std::uint32_t>(block / kAlignment * kAlignment);
  const double more = std::ceil(hidden_bytes / shape.block_bytes);
  shape.in_flight = static_cast<std::uint32_t>(std::min<double>(kInFlightMax, kInFlightMin + more));
  shape.blocks = static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(kProbeBytes / shape.block_bytes, shape.in_flight, kBlocksMax));
  return shape;
}

Result<RateProbe> open_rate_probe(const TierSpec& spec, const TierContext& context,
                                  const TierFactory& make,
                                  const std::shared_ptr<ThrottleControl>& control) {
  const ProbeShape shape = probe_shape(spec.throttle.read_bytes_per_s, spec.throttle.latency_ns);
  TierSpec inner = spec;
  inner.throttle = {};
  inner.cap_bytes = std::uint64_t{kCapFactor} * shape.block_bytes * shape.blocks;
  TierContext alone = context;
  alone.rank = alone.local_rank = 0;
  alone.ranks = alone.local_ranks = 1;
  alone.block_bytes_max = shape.block_bytes;

  RateProbe probe;
  probe.in_flight = shape.in_flight;
  if (!spec.path.empty()) {
    std::string folder = spec.path + "/.calibration-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr) {
      return failure(Code::kIoError, fmt::format("failed to make a folder in {} ({})", spec.path,
                                                 std::strerror(errno)));
    }
    probe.place = std::make_shared<TemporaryFolder>(folder, FolderRole::kRemover);
    // Two levels down: what looks for writers in the run's own directory finds none here.
    inner.path = folder + "/tier";
  }
  auto made = make(inner, alone);
  if (!made) return failure(made.error());
  probe.tier = adapt(std::move(*made), *context.clock).tier;
  if (Status status = write_blocks(probe, shape, *context.clock); !status.is_ok()) {
    return failure(status);
  }
  probe.tier = std::make_unique<ThrottledTier>(std::move(probe.tier), control, *context.clock);
  return probe;
}

}  // namespace kvstream
