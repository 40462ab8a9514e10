// A workload by name: a trace file, or a generator's name in place of one. Pure but for the file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvstream/status.hpp"
#include "replay/generator.hpp"

namespace kvstream {

struct SourceOptions {
  std::string trace = "documents";  ///< a path, or documents, loogle, agent
  std::uint64_t skip = 0;           ///< requests that the caller does not play
  std::uint64_t requests = 0;       ///< behind them; 0 = all that there are
  std::uint64_t seed = 1;
  std::uint32_t documents = 100;  ///< of `documents`
  std::uint32_t document_tokens = 16'384;
  DocumentOrder order = DocumentOrder::kShuffled;  ///< of `loogle`
  double sharing = 1.0;                            ///< of `agent`
  std::uint32_t open_conversations = 64;           ///< of `agent`, and of traces without arrivals
};

/// The first skip + requests requests; conversations of a trace that is not timed are mixed
/// (interleave()). kInvalidArgument when there are none behind those that are skipped.
Result<Workload> load_workload(const SourceOptions& options);

/// Drops the first `count` requests; the arrivals of the rest begin at 0.
void drop_first(Workload& workload, std::uint64_t count);

}  // namespace kvstream
