// A tier without bytes: slots, and a modelled device that tells when an operation ends.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "kvstream/tier.hpp"
#include "replay/contents.hpp"
#include "replay/model_device.hpp"
#include "replay/prefill.hpp"

namespace kvstream {

class ModelTier;

/// The same tier of all ranks of a virtual run: who can see what the others write there, and when.
/// Owned by the run; one thread.
class ModelStore {
 public:
  struct Options {
    TierSpec spec;
    Visibility visibility = Visibility::kRank;
    std::uint32_t block_bytes_max = 0;
    Nanos follow_period_ns = kSecond;  ///< others' logs are read at whole periods
  };
  explicit ModelStore(Options options) : options_(std::move(options)) {}

  /// A rank's tier: `writers` ranks share the cap. It outlives neither the store nor the device,
  /// and tells the store when it goes.
  std::unique_ptr<ModelTier> open(std::uint32_t node, std::uint32_t writers, ModelDevice& device,
                                  const Clock& clock);

  const Options& options() const { return options_; }

 private:
  friend class ModelTier;
  bool sees(const ModelTier& reader, const ModelTier& writer) const;
  void announce(const ModelTier& from, const CatalogChange& change, Nanos now);
  std::uint32_t busy_on(const ModelDevice& device) const;

  Options options_;
  std::vector<ModelTier*> members_;  ///< by segment number; null when gone
};

/// Owned by a DrivenEngine. The segment of a location is the number of the tier that wrote it, so
/// another rank's tier finds it in the store. A slot that was used again meanwhile reads as not
/// found, as a checksum would have it.
class ModelTier final : public Tier {
 public:
  ~ModelTier() override;

  /// A block that lies there before the engine is opened, as recovery would find it; false when no
  /// slot is left.
  bool preload(const BlockKey& key, std::uint32_t size_bytes);

  const TierTraits& traits() const override { return traits_; }
  Result<SlotRef> reserve(std::uint32_t size_bytes) override;
  void free(SlotRef at) override;
  std::size_t submit_reads(std::span<const ReadOp> ops) override;
  std::size_t submit_writes(std::span<const WriteOp> ops) override;
  std::size_t poll(std::span<Completion> out) override;
  int wait_fd() const override { return -1; }
  Nanos next_event() const override;
  const std::byte* view(SlotRef at) const override;
  std::size_t changes(std::span<CatalogChange> out) override;
  void recheck(const CatalogChange& seen) override;
  Status chore() override { return Status::ok(); }
  TierReport report() const override;

 private:
  friend class ModelStore;
  struct Slot {
    BlockKey key;
    std::uint32_t size_bytes = 0;
    std::uint64_t generation = 0;
    bool written = false;
  };
  struct Running {
    Nanos end = 0;
    std::uint64_t sequence = 0;
    Completion done;
    SlotRef at;
    bool is_write = false;
    bool operator>(const Running& other) const {
      return end != other.end ? end > other.end : sequence > other.sequence;
    }
  };
  struct News {
    Nanos due = 0;
    CatalogChange change;
  };

  ModelTier(ModelStore& store, std::uint32_t segment, std::uint32_t node, std::uint64_t slots,
            ModelDevice& device, const Clock& clock);
  void learn_contents(const ModelTier& writer);
  const Slot* find(SlotRef at) const;
  CatalogChange change_of(CatalogChange::Kind kind, SlotRef at) const;

  ModelStore& store_;
  std::uint32_t segment_, node_;
  ModelDevice& device_;
  const Clock& clock_;
  TierTraits traits_;
  std::uint64_t slot_bytes_;
  std::vector<Slot> slots_;
  std::vector<std::uint32_t> free_;
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  std::deque<News> news_;
  std::uint64_t sequence_ = 0;
  std::uint64_t errors_ = 0;
};

}  // namespace kvstream
