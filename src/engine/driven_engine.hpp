// An engine without threads, for virtual time: whoever holds it moves the clock and calls turn().
#pragma once

#include <memory>
#include <vector>

#include "engine/copy_threads.hpp"
#include "kvstream/engine.hpp"

namespace kvstream {

/// The same catalog, planner, boards, devices and pump as any engine, and the same loop, in the
/// caller's hands: no thread is made, nothing waits or sleeps, and no byte is touched (pools are
/// addresses alone, so tiers and `copies` must be models). Deterministic. Owned and called by one
/// thread; tickets are polled, never waited for. refresh() is the tiers' own affair here.
class DrivenEngine : public Engine {
 public:
  /// `options.context.clock` is the virtual clock and outlives the engine.
  static Result<std::unique_ptr<DrivenEngine>> open(Options options, std::vector<TierPart> tiers,
                                                    std::unique_ptr<Copies> copies);

  /// One turn of the loop at the clock's present time; says when the next is due at the latest.
  virtual Nanos turn() = 0;
  /// No step, read, write or copy is under way.
  virtual bool idle() const = 0;
};

}  // namespace kvstream
