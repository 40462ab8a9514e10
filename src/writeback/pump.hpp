// The write-back pump: new blocks go from slabs to tiers, giving way to reads.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "catalog/catalog.hpp"
#include "device/device.hpp"
#include "kvstream/tier.hpp"
#include "writeback/replication_policy.hpp"

namespace kvstream {

/// A block that lies in a slab, checksummed, and waits for its copies.
struct PumpBlock {
  NewBlock block;
  std::uint64_t checksum = 0;
  std::byte* slab = nullptr;
  WriteTargets targets;
  std::uint64_t owner = 0;  ///< handed back in PumpHost::on_written
};

/// What the pump tells the engine; called on the progress thread.
class PumpHost {
 public:
  virtual ~PumpHost() = default;
  /// All copies are published or given up; `copies` of them were published. The slab is free.
  virtual void on_written(const PumpBlock& block, std::uint32_t copies) = 0;
  /// A tier has no slot now but may have one once its chores have run.
  virtual void on_slots_wanted(std::uint8_t tier) = 0;
  /// Unread blocks wait for this tier.
  virtual bool reads_wait(std::uint8_t tier) const = 0;
};

struct PumpTierCounters {
  std::uint64_t writes = 0, written_bytes = 0, errors = 0, evicted = 0;
};

/// Owned by the engine, called by the progress thread. Bounded by the slabs that the engine lends
/// to it. Publish last, retract first: a copy is published when its write has completed, and a
/// victim's slot is freed after it was retracted. A write waits for credit only while reads wait.
class WriteBackPump {
 public:
  struct Target {
    Tier* tier = nullptr;
    Device* device = nullptr;
  };
  struct Options {
    Nanos give_up_ns = 10 * kSecond;  ///< for want of a slot that chores are to make
  };

  WriteBackPump(Options options, std::vector<Target> targets, Catalog& catalog, PumpHost& host);

  void enqueue(const PumpBlock& block, Nanos now);
  /// A write that this pump submitted has completed; ids have bit 63 set.
  void on_write_complete(std::uint8_t tier, const Completion& done, Nanos now);
  /// Starts what may start; says when to be called again at the latest.
  Nanos turn(Nanos now);
  /// Gives up everything that has not been submitted.
  void drop_queued(Nanos now);

  std::uint64_t in_flight() const { return in_flight_; }
  bool idle() const { return items_used_ == 0; }
  PumpTierCounters counters(std::uint8_t tier) const { return counters_[tier]; }
  static constexpr std::uint64_t kWriteBit = std::uint64_t{1} << 63;

 private:
  struct Write {
    SlotRef at;
    Nanos submitted_at = 0;
  };
  struct Item {
    PumpBlock block;
    std::uint64_t all = 0, any = 0;  ///< tiers still to be written
    std::uint64_t failed = 0;        ///< tiers whose write ended in an error
    std::uint32_t copies = 0, writing = 0;
    Nanos since = 0;
    bool used = false;
    std::vector<Write> writes;  ///< one a tier
  };
  enum class Start : std::uint8_t { kStarted, kSkipped, kBlocked };

  Start start(std::uint8_t tier, std::uint32_t item, Nanos now);
  std::uint8_t next_in_turn(std::uint64_t candidates) const;
  void took(std::uint8_t tier, std::uint32_t bytes);
  bool declines(std::uint8_t tier, const Item& item, Nanos now) const;
  Result<SlotRef> reserve(std::uint8_t tier, std::uint32_t size_bytes);
  void give_up(std::uint8_t tier, Item& item);
  /// A block that any tier may take is offered again to those that have not failed it.
  void retry_elsewhere(std::uint8_t failed, std::uint32_t index);
  void finish_if_done(std::uint32_t item);
  bool wants(const Item& item, std::uint8_t tier) const;

  Options options_;
  std::vector<Target> targets_;
  Catalog& catalog_;
  PumpHost& host_;
  std::vector<Item> items_;
  std::vector<std::uint32_t> unused_;
  std::vector<std::deque<std::uint32_t>> queues_;  ///< one a tier
  std::vector<PumpTierCounters> counters_;
  /// Time that each tier has taken of what any could have had: bytes over its write rate.
  std::vector<double> taken_ns_;
  std::uint64_t items_used_ = 0, in_flight_ = 0;
};

}  // namespace kvstream
