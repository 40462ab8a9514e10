// Loads and saves under way, for kvstream_poll().
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <span>

#include "kvstream/engine.hpp"
#include "kvstream/kvstream.h"

namespace kvstream {

/// Numbers what was submitted and turns what the tickets say into events, each told once. Owned by
/// a kvstream_engine, whose engine outlives it. Any thread. Bounded: kWorksMax pieces of work.
class WorkTable {
 public:
  static constexpr std::size_t kWorksMax = 65'536;

  explicit WorkTable(Engine& engine) : engine_(engine) {}

  /// `states` may be null; else it has a byte a block and stays until KVSTREAM_DONE was told.
  Result<std::uint64_t> load(const StepRequest& request, std::uint8_t* states);
  Result<std::uint64_t> save(const SaveRequest& request, std::uint8_t* states);
  /// kNotFound when KVSTREAM_DONE was told already and nothing is late.
  Status cancel(std::uint64_t work, Nanos deadline);
  /// Fills `events` and says how many; rings the engine's eventfd again when there may be more.
  std::size_t poll(std::span<kvstream_event> events);

 private:
  struct Work {
    Ticket load;      ///< either this
    SaveTicket save;  ///< or this
    std::size_t count_blocks = 0;
    std::uint8_t* states = nullptr;
    bool staged_told = false, done_told = false;
  };
  Status check_room() const;
  std::uint64_t add(Work work);
  /// True and the event filled in when there is one; `over`: it is the last of this work.
  static bool next_event(Work& work, kvstream_event& event, bool& over);

  Engine& engine_;
  std::mutex mutex_;  ///< held over a submission, so that no event is seen before its work is known
  std::map<std::uint64_t, Work> works_;
  std::uint64_t last_ = 0;
};

}  // namespace kvstream
