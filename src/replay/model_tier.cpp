#include "replay/model_tier.hpp"

#include <algorithm>
#include <numeric>

#include "core/units.hpp"
#include "memory/mapping.hpp"

namespace kvstream {
namespace {

constexpr std::uint32_t kSlotAlign = 4096;
constexpr std::uint32_t kInFlightMax = 256;
// Never read: memory that is only modelled has addresses, so that "in place" can be told.
std::byte* const kNowhere = reinterpret_cast<std::byte*>(std::uintptr_t{kSlotAlign});

TierTraits traits_of(const TierSpec& spec, const ModelDevice& device, Visibility visibility) {
  TierTraits traits;
  traits.kind = spec.kind;
  traits.name = spec.name;
  traits.device_id = device.id();
  traits.in_flight_max = kInFlightMax;
  traits.direct_landing = true;
  const bool memory = visibility == Visibility::kRank;
  traits.trusted = memory;
  traits.addressable = memory && !spec.throttle.any();  // as behind the real limit
  traits.persistent = traits.readable_without_owner = !memory;
  return traits;
}

}  // namespace

std::unique_ptr<ModelTier> ModelStore::open(std::uint32_t node, std::uint32_t writers,
                                            ModelDevice& device, const Clock& clock) {
  const std::uint64_t slot = round_up(options_.block_bytes_max, kSlotAlign);
  const std::uint64_t slots = options_.spec.cap_bytes / std::max(1U, writers) / slot;
  std::unique_ptr<ModelTier> tier(new ModelTier(*this, static_cast<std::uint32_t>(members_.size()),
                                                node, slots, device, clock));
  // Logs of those that were there before are read at open, as recovery reads them.
  for (const ModelTier* member : members_) {
    if (member != nullptr && sees(*tier, *member)) tier->learn_contents(*member);
  }
  members_.push_back(tier.get());
  return tier;
}

bool ModelStore::sees(const ModelTier& reader, const ModelTier& writer) const {
  switch (options_.visibility) {
    case Visibility::kRank:
      return &reader == &writer;
    case Visibility::kNode:
      return reader.node_ == writer.node_;
    case Visibility::kJob:
      return true;
  }
  return false;
}

void ModelStore::announce(const ModelTier& from, const CatalogChange& change, Nanos now) {
  const Nanos period = std::max<Nanos>(1, options_.follow_period_ns);
  const Nanos due = (now / period + 1) * period;
  for (ModelTier* member : members_) {
    if (member == nullptr || member == &from || !sees(*member, from)) continue;
    member->news_.push_back({due, change});
  }
}

std::uint32_t ModelStore::busy_on(const ModelDevice& device) const {
  const auto busy = std::count_if(members_.begin(), members_.end(), [&](const ModelTier* member) {
    return member != nullptr && &member->device_ == &device && !member->running_.empty();
  });
  return static_cast<std::uint32_t>(std::max<std::ptrdiff_t>(1, busy));
}

ModelTier::ModelTier(ModelStore& store, std::uint32_t segment, std::uint32_t node,
                     std::uint64_t slots, ModelDevice& device, const Clock& clock)
    : store_(store),
      segment_(segment),
      node_(node),
      device_(device),
      clock_(clock),
      traits_(traits_of(store.options().spec, device, store.options().visibility)),
      slot_bytes_(round_up(store.options().block_bytes_max, kSlotAlign)),
      slots_(slots),
      free_(slots) {
  std::iota(free_.rbegin(), free_.rend(), 0U);
}

ModelTier::~ModelTier() { store_.members_[segment_] = nullptr; }

bool ModelTier::preload(const BlockKey& key, std::uint32_t size_bytes) {
  auto at = reserve(size_bytes);
  if (!at) return false;
  Slot& slot = slots_[at->slot];
  slot.key = key;
  slot.size_bytes = size_bytes;
  slot.written = true;
  CatalogChange found = change_of(CatalogChange::Kind::kAdded, *at);
  for (ModelTier* member : store_.members_) {
    if (member == nullptr || !store_.sees(*member, *this)) continue;
    found.own = member == this;
    member->news_.push_back({clock_.now(), found});
  }
  return true;
}

void ModelTier::learn_contents(const ModelTier& writer) {
  for (std::uint32_t slot = 0; slot < writer.slots_.size(); ++slot) {
    if (!writer.slots_[slot].written) continue;
    const SlotRef at{writer.segment_, slot, writer.slots_[slot].generation};
    news_.push_back({clock_.now(), writer.change_of(CatalogChange::Kind::kAdded, at)});
  }
}

const ModelTier::Slot* ModelTier::find(SlotRef at) const {
  const auto& members = store_.members_;
  if (at.segment >= members.size() || members[at.segment] == nullptr) return nullptr;
  const auto& slots = members[at.segment]->slots_;
  if (at.slot >= slots.size() || slots[at.slot].generation != at.generation) return nullptr;
  return &slots[at.slot];
}

CatalogChange ModelTier::change_of(CatalogChange::Kind kind, SlotRef at) const {
  const Slot& slot = slots_[at.slot];
  return {kind, false, slot.key, at, slot.size_bytes, 0};
}

Result<SlotRef> ModelTier::reserve(std::uint32_t size_bytes) {
  if (size_bytes > slot_bytes_) {
    return failure(Code::kInvalidArgument, "a block of " + format_size(size_bytes) +
                                               " does not fit a slot of tier " + traits_.name);
  }
  if (free_.empty()) return failure(Code::kNoSpace, "tier " + traits_.name + " is full");
  const std::uint32_t index = free_.back();
  free_.pop_back();
  Slot& slot = slots_[index];
  ++slot.generation;
  slot.written = false;
  return SlotRef{segment_, index, slot.generation};
}

void ModelTier::free(SlotRef at) {
  if (at.segment != segment_ || find(at) == nullptr) return;
  Slot& slot = slots_[at.slot];
  if (slot.written) {
    store_.announce(*this, change_of(CatalogChange::Kind::kRemoved, at), clock_.now());
  }
  slot.written = false;
  ++slot.generation;
  free_.push_back(at.slot);
}

std::size_t ModelTier::submit_reads(std::span<const ReadOp> ops) {
  const std::size_t taken = std::min(ops.size(), kInFlightMax - running_.size());
  for (const ReadOp& op : ops.first(taken)) {
    const Nanos end = device_.submit(Transfer::kRead, op.size_bytes, clock_.now());
    running_.push({end, ++sequence_, {op.id, Code::kOk, op.size_bytes}, op.at, false});
  }
  return taken;
}

std::size_t ModelTier::submit_writes(std::span<const WriteOp> ops) {
  const std::size_t taken = std::min(ops.size(), kInFlightMax - running_.size());
  for (const WriteOp& op : ops.first(taken)) {
    Slot& slot = slots_[op.at.slot];
    slot.key = op.key;
    slot.size_bytes = op.size_bytes;
    const Nanos end = device_.submit(Transfer::kWrite, op.size_bytes, clock_.now());
    running_.push({end, ++sequence_, {op.id, Code::kOk, op.size_bytes}, op.at, true});
  }
  return taken;
}

std::size_t ModelTier::poll(std::span<Completion> out) {
  std::size_t count = 0;
  for (; count < out.size() && !running_.empty() && running_.top().end <= clock_.now();
       running_.pop()) {
    const Running& op = running_.top();
    Completion done = op.done;
    if (op.is_write) {
      slots_[op.at.slot].written = true;
      store_.announce(*this, change_of(CatalogChange::Kind::kAdded, op.at), clock_.now());
    } else if (const Slot* slot = find(op.at); slot == nullptr || !slot->written) {
      done.code = Code::kNotFound;
      done.size_bytes = 0;
      ++errors_;
    }
    out[count++] = done;
  }
  return count;
}

Nanos ModelTier::next_event() const {
  const Nanos operation = running_.empty() ? kNever : running_.top().end;
  return news_.empty() ? operation : std::min(operation, news_.front().due);
}

const std::byte* ModelTier::view(SlotRef at) const {
  return traits_.addressable && find(at) != nullptr ? kNowhere : nullptr;
}

std::size_t ModelTier::changes(std::span<CatalogChange> out) {
  std::size_t count = 0;
  for (; count < out.size() && !news_.empty() && news_.front().due <= clock_.now();
       news_.pop_front()) {
    out[count++] = news_.front().change;
  }
  return count;
}

void ModelTier::recheck(const CatalogChange& seen) {
  CatalogChange answer = seen;
  answer.kind = CatalogChange::Kind::kRecycled;
  news_.push_front({clock_.now(), answer});
}

TierReport ModelTier::report() const {
  TierReport report;
  report.capacity_bytes = slot_bytes_ * slots_.size();
  report.free_bytes = slot_bytes_ * free_.size();
  report.used_bytes = report.capacity_bytes - report.free_bytes;
  report.sharers = store_.busy_on(device_);
  report.errors = errors_;
  report.mode = "modelled";
  return report;
}

}  // namespace kvstream
