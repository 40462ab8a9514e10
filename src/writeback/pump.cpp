#include "writeback/pump.hpp"

#include <algorithm>

namespace kvstream {
namespace {

constexpr std::uint64_t bit_of(std::uint8_t tier) { return std::uint64_t{1} << tier; }
/// How many blocks leave a tier at once when it is full.
constexpr std::uint32_t kEvictAtOnce = 4;
constexpr Nanos kLookAgain = 2 * kMillisecond;
constexpr double kPriorRate = 1;  // bytes per ns, of a tier that has written nothing yet
constexpr double kLagBlocks = 8;
constexpr double kPatience = 4;  // times the own finish

}  // namespace

WriteBackPump::WriteBackPump(Options options, std::vector<Target> targets, Catalog& catalog,
                             PumpHost& host)
    : options_(options),
      targets_(std::move(targets)),
      catalog_(catalog),
      host_(host),
      queues_(targets_.size()),
      counters_(targets_.size()),
      taken_ns_(targets_.size(), 0.0) {}

bool WriteBackPump::wants(const Item& item, std::uint8_t tier) const {
  return item.used && ((item.all | item.any) & bit_of(tier)) != 0;
}

void WriteBackPump::enqueue(const PumpBlock& block, Nanos now) {
  std::uint32_t index = 0;
  if (unused_.empty()) {
    index = static_cast<std::uint32_t>(items_.size());
    items_.emplace_back();
    items_.back().writes.resize(targets_.size());
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  Item& item = items_[index];
  ++items_used_;
  item.block = block;
  item.all = block.targets.all;
  item.any = block.targets.any;
  item.failed = 0;
  item.copies = item.writing = 0;
  item.since = now;
  item.used = true;
  std::fill(item.writes.begin(), item.writes.end(), Write{});
  // A tier that has the block already needs no second copy of it.
  const auto known = catalog_.find(block.block.key, item.all | item.any);
  for (const auto& replica : known.all()) {
    if ((item.any & bit_of(replica.tier)) != 0) item.any = 0;
    item.all &= ~bit_of(replica.tier);
    ++item.copies;
  }
  for (std::uint8_t tier = 0; tier < targets_.size(); ++tier) {
    if (wants(item, tier)) queues_[tier].push_back(index);
  }
  finish_if_done(index);
}

/// Of the tiers that have room the one that has taken the least time of shared blocks: so they
/// spread in proportion to write speed, also while every tier has room.
std::uint8_t WriteBackPump::next_in_turn(std::uint64_t candidates) const {
  std::uint8_t best = kTiersMax;
  for (std::uint8_t tier = 0; tier < targets_.size(); ++tier) {
    if ((candidates & bit_of(tier)) == 0) continue;
    if (best == kTiersMax || taken_ns_[tier] < taken_ns_[best]) best = tier;
  }
  return best;
}

void WriteBackPump::took(std::uint8_t tier, std::uint32_t bytes) {
  const auto time_of = [&](std::uint8_t t, double size) {
    const double rate = targets_[t].device->write_rate_bytes_per_ns();
    return size / (rate > 0 ? rate : kPriorRate);
  };
  taken_ns_[tier] += time_of(tier, bytes);
  // One that had no room for long does not take everything once it has.
  for (std::uint8_t t = 0; t < targets_.size(); ++t) {
    taken_ns_[t] = std::max(taken_ns_[t], taken_ns_[tier] - time_of(t, kLagBlocks * bytes));
  }
}

/// The tail rule of reads, for a block that any tier may take: left to one that will have written
/// it sooner, unless so much is queued that the others are busy for longer than this tier needs.
/// What has waited for a while is declined by nobody.
bool WriteBackPump::declines(std::uint8_t tier, const Item& item, Nanos now) const {
  const auto size = static_cast<double>(item.block.block.size_bytes);
  const auto finish_ns = [&](std::uint8_t t, double rate) {
    return (static_cast<double>(targets_[t].device->write_bytes_in_flight()) + size) / rate;
  };
  const double own = targets_[tier].device->write_rate_bytes_per_ns();
  double others = 0, in_flight = 0, soonest = 0;
  for (std::uint8_t t = 0; t < targets_.size(); ++t) {
    if (t == tier || (item.any & bit_of(t)) == 0) continue;
    const Device& device = *targets_[t].device;
    const double rate = device.write_rate_bytes_per_ns();
    // Only one that is at work is sure to come back for it.
    if (rate <= 0 || device.writes_in_flight() == 0) continue;
    others += rate;
    in_flight += static_cast<double>(device.write_bytes_in_flight());
    const double finish = finish_ns(t, rate);
    soonest = soonest == 0 ? finish : std::min(soonest, finish);
  }
  if (own <= 0 || others <= 0) return false;
  const double mine = finish_ns(tier, own);
  const double backlog = static_cast<double>(queues_[tier].size()) * size + in_flight;
  if (mine <= std::max(soonest, backlog / others)) return false;
  return static_cast<double>(now - item.since) < kPatience * mine;
}

Nanos WriteBackPump::turn(Nanos now) {
  Nanos again = kNever;
  std::uint64_t candidates = 0;
  for (std::uint8_t tier = 0; tier < targets_.size(); ++tier) candidates |= bit_of(tier);
  for (std::uint8_t tier = next_in_turn(candidates); tier != kTiersMax;
       tier = next_in_turn(candidates)) {
    auto& queue = queues_[tier];
    const auto outcome = queue.empty() ? Start::kBlocked : start(tier, queue.front(), now);
    if (outcome != Start::kBlocked) {
      queue.pop_front();
      continue;
    }
    candidates &= ~bit_of(tier);
    // What is in flight will end, and that is a turn; only a slot that chores make is not.
    const Device& device = *targets_[tier].device;
    if (!queue.empty() && device.reads_in_flight() + device.writes_in_flight() == 0) {
      again = std::min(again, now + kLookAgain);
    }
  }
  return again;
}

WriteBackPump::Start WriteBackPump::start(std::uint8_t tier, std::uint32_t index, Nanos now) {
  Item& item = items_[index];
  if (!wants(item, tier)) return Start::kSkipped;
  const auto [target, device] = targets_[tier];
  const auto size = item.block.block.size_bytes;
  if (device->free_write_places() == 0) return Start::kBlocked;
  if ((item.any & bit_of(tier)) != 0 && declines(tier, item, now)) return Start::kBlocked;
  const bool reads_wait = host_.reads_wait(tier);
  if (reads_wait && !device->write_credit_covers(size)) return Start::kBlocked;
  const auto slot = reserve(tier, size);
  if (!slot) {
    const bool may_come = slot.error().code() == Code::kOverloaded;
    if (may_come) host_.on_slots_wanted(tier);
    if (may_come && now - item.since < options_.give_up_ns) return Start::kBlocked;
    give_up(tier, item);
    finish_if_done(index);
    return Start::kSkipped;
  }
  const WriteOp op{kWriteBit | std::uint64_t{index} << 8 | tier,
                   item.block.block.key,
                   *slot,
                   size,
                   item.block.checksum,
                   item.block.slab};
  if (target->submit_writes({&op, 1}) == 0) {
    target->free(*slot);
    return Start::kBlocked;
  }
  if (reads_wait) device->spend_write_credit(size);
  device->on_submit(Device::Kind::kWrite, size, now);
  item.writes[tier] = {*slot, now};
  item.all &= ~bit_of(tier);
  if ((item.any & bit_of(tier)) != 0) {
    took(tier, size);
    item.any = 0;  // claimed: the others need not
  }
  ++item.writing;
  ++in_flight_;
  return Start::kStarted;
}

Result<SlotRef> WriteBackPump::reserve(std::uint8_t tier, std::uint32_t size_bytes) {
  auto slot = targets_[tier].tier->reserve(size_bytes);
  if (slot || slot.error().code() != Code::kNoSpace) return slot;
  const auto victims = catalog_.evict(tier, kEvictAtOnce);
  for (const auto& victim : victims) targets_[tier].tier->free(victim.replica.at);
  counters_[tier].evicted += victims.size();
  return victims.empty() ? slot : targets_[tier].tier->reserve(size_bytes);
}

void WriteBackPump::give_up(std::uint8_t tier, Item& item) {
  item.all &= ~bit_of(tier);
  item.any &= ~bit_of(tier);
}

void WriteBackPump::on_write_complete(std::uint8_t tier, const Completion& done, Nanos now) {
  const auto index = static_cast<std::uint32_t>((done.id & ~kWriteBit) >> 8);
  Item& item = items_[index];
  Write& write = item.writes[tier];
  const auto& block = item.block.block;
  const bool good = done.code == Code::kOk;
  targets_[tier].device->on_complete(Device::Kind::kWrite, block.size_bytes, write.submitted_at,
                                     good, now);
  --in_flight_;
  --item.writing;
  if (good) {
    ++counters_[tier].writes;
    counters_[tier].written_bytes += block.size_bytes;
  }
  // Two steps may have computed the same block before either was published: one copy is enough.
  const auto known = catalog_.find(block.key, bit_of(tier));
  const bool there = known.count > 0 && known.at[0].own;
  const Replica replica{tier, true, write.at, block.size_bytes, item.block.checksum};
  if (good && !there && catalog_.publish(block.key, replica)) {
    ++item.copies;
  } else {
    if (good && there) ++item.copies;
    targets_[tier].tier->free(write.at);
    if (!good) retry_elsewhere(tier, index);
  }
  finish_if_done(index);
}

void WriteBackPump::retry_elsewhere(std::uint8_t failed, std::uint32_t index) {
  Item& item = items_[index];
  ++counters_[failed].errors;
  item.failed |= bit_of(failed);
  if ((item.block.targets.any & bit_of(failed)) == 0) return;
  item.any = item.block.targets.any & ~item.failed;
  for (std::uint8_t tier = 0; tier < targets_.size(); ++tier) {
    if ((item.any & bit_of(tier)) != 0) queues_[tier].push_back(index);
  }
}

void WriteBackPump::finish_if_done(std::uint32_t index) {
  Item& item = items_[index];
  if (item.writing > 0 || (item.all | item.any) != 0) return;
  item.used = false;
  --items_used_;
  unused_.push_back(index);
  host_.on_written(item.block, item.copies);
}

void WriteBackPump::drop_queued(Nanos) {
  for (std::uint32_t index = 0; index < items_.size(); ++index) {
    Item& item = items_[index];
    if (!item.used) continue;
    item.all = item.any = 0;
    finish_if_done(index);
  }
  for (auto& queue : queues_) queue.clear();
}

}  // namespace kvstream
