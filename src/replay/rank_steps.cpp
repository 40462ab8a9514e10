#include "replay/rank_steps.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <type_traits>

namespace kvstream {
namespace {

// Fixed-width little-endian fields, in order of declaration.
static_assert(std::endian::native == std::endian::little);
constexpr std::uint64_t kMagic = 0x3170'6574'5376'6b01;  // changes with the format

class Packer {
 public:
  template <class T>
  void put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(const std::string& bytes) : bytes_(bytes) {}
  /// 0 and a mark when the bytes have ended.
  template <class T>
  T get() {
    T value{};
    if (bytes_.size() - at_ < sizeof value) {
      short_ = true;
      return value;
    }
    std::memcpy(&value, bytes_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  /// A count of entries that each take at least `entry_bytes`: never more than are there.
  std::size_t count(std::size_t entry_bytes) {
    const auto value = get<std::uint64_t>();
    if (value > (bytes_.size() - at_) / entry_bytes) {
      short_ = true;
      return 0;
    }
    return static_cast<std::size_t>(value);
  }
  bool ended_short() const { return short_; }
  bool at_end() const { return at_ == bytes_.size(); }

 private:
  const std::string& bytes_;
  std::size_t at_ = 0;
  bool short_ = false;
};

constexpr std::size_t kBlockBytes = 8 + 8 + 4 + 1 + 1;
constexpr std::size_t kReadBytes = 8 + 8 + 4 + 1 + 1;
constexpr std::size_t kStepBytes = 8 + 8 + 8 + 8;

void put_step(Packer& out, const StepRecord& step) {
  out.put(step.released_at);
  out.put(step.ended_at);
  out.put<std::uint64_t>(step.blocks.size());
  for (const StepRecord::Block& block : step.blocks) {
    out.put(block.key64);
    out.put(block.sources);
    out.put(block.size_bytes);
    out.put(block.source);
    out.put<std::uint8_t>(block.hit ? 1 : 0);
  }
  out.put<std::uint64_t>(step.reads.size());
  for (const StepRecord::Read& read : step.reads) {
    out.put(read.submitted_at);
    out.put(read.ended_at);
    out.put(read.block);
    out.put(read.source);
    out.put<std::uint8_t>((read.hedge ? 1U : 0U) | (read.good ? 2U : 0U));
  }
}

StepRecord get_step(Unpacker& in) {
  StepRecord step;
  step.released_at = in.get<Nanos>();
  step.ended_at = in.get<Nanos>();
  step.blocks.resize(in.count(kBlockBytes));
  for (StepRecord::Block& block : step.blocks) {
    block.key64 = in.get<std::uint64_t>();
    block.sources = in.get<std::uint64_t>();
    block.size_bytes = in.get<std::uint32_t>();
    block.source = in.get<std::uint8_t>();
    block.hit = in.get<std::uint8_t>() != 0;
  }
  step.reads.resize(in.count(kReadBytes));
  for (StepRecord::Read& read : step.reads) {
    read.submitted_at = in.get<Nanos>();
    read.ended_at = in.get<Nanos>();
    read.block = in.get<std::uint32_t>();
    read.source = in.get<std::uint8_t>();
    const auto flags = in.get<std::uint8_t>();
    read.hedge = (flags & 1U) != 0;
    read.good = (flags & 2U) != 0;
  }
  return step;
}

}  // namespace

std::string pack_rank_steps(const RankSteps& steps) {
  Packer out;
  out.put(kMagic);
  out.put(steps.rank);
  out.put(steps.memory_device);
  out.put(steps.clock_offset);
  out.put<std::uint64_t>(steps.device_of_tier.size());
  for (const std::uint32_t device : steps.device_of_tier) out.put(device);
  out.put<std::uint64_t>(steps.steps.size());
  for (const StepRecord& step : steps.steps) put_step(out, step);
  return out.take();
}

Result<RankSteps> unpack_rank_steps(const std::string& packed) {
  Unpacker in(packed);
  if (in.get<std::uint64_t>() != kMagic) {
    return failure(Code::kCorrupt, fmt::format("{} B that are no step records", packed.size()));
  }
  RankSteps steps;
  steps.rank = in.get<std::uint32_t>();
  steps.memory_device = in.get<std::uint32_t>();
  steps.clock_offset = in.get<Nanos>();
  steps.device_of_tier.resize(in.count(sizeof(std::uint32_t)));
  for (std::uint32_t& device : steps.device_of_tier) device = in.get<std::uint32_t>();
  const std::size_t count = in.count(kStepBytes);
  for (std::size_t i = 0; i < count && !in.ended_short(); ++i) steps.steps.push_back(get_step(in));
  if (in.ended_short() || !in.at_end()) {
    return failure(Code::kCorrupt,
                   fmt::format("step records of rank {} are cut or too long at {} B", steps.rank,
                               packed.size()));
  }
  return steps;
}

}  // namespace kvstream
