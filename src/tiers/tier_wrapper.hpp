// The base of the wrappers: forwards everything to the tier inside.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "kvstream/tier.hpp"

namespace kvstream {

/// Owns the tier that it wraps and adds nothing; a wrapper overrides what it changes. Threads and
/// bounds are those of Tier.
class TierWrapper : public Tier {
 public:
  const TierTraits& traits() const override { return inner_->traits(); }
  Result<SlotRef> reserve(std::uint32_t size_bytes) override { return inner_->reserve(size_bytes); }
  void free(SlotRef at) override { inner_->free(at); }
  std::size_t submit_reads(std::span<const ReadOp> ops) override {
    return inner_->submit_reads(ops);
  }
  std::size_t submit_writes(std::span<const WriteOp> ops) override {
    return inner_->submit_writes(ops);
  }
  std::size_t poll(std::span<Completion> out) override { return inner_->poll(out); }
  int wait_fd() const override { return inner_->wait_fd(); }
  Nanos next_event() const override { return inner_->next_event(); }
  const std::byte* view(SlotRef at) const override { return inner_->view(at); }
  std::size_t changes(std::span<CatalogChange> out) override { return inner_->changes(out); }
  void recheck(const CatalogChange& seen) override { inner_->recheck(seen); }
  Status chore() override { return inner_->chore(); }
  TierReport report() const override { return inner_->report(); }

 protected:
  explicit TierWrapper(std::unique_ptr<Tier> inner) : inner_(std::move(inner)) {}
  Tier& inner() { return *inner_; }
  const Tier& inner() const { return *inner_; }

 private:
  std::unique_ptr<Tier> inner_;
};

}  // namespace kvstream
