// The built-in trace: documents that are asked several times.
#pragma once

#include <cstdint>
#include <vector>

#include "kvstream/status.hpp"
#include "replay/trace.hpp"

namespace kvstream {

/// Each question's prompt is a whole document and the question behind it, so two questions about
/// one document share its full blocks.
struct DocumentsOptions {
  std::uint32_t documents = 100;
  std::uint64_t requests = 600;               ///< each asks one of the documents, in turn
  std::uint32_t document_tokens = 16'384;     ///< mean; uniform within +-50 %
  std::uint32_t question_tokens = 128;        ///< mean; uniform within +-50 %
  std::uint32_t output_tokens = 32;           ///< mean; uniform within +-50 %
  Nanos arrival_gap_ns = 500 * kMillisecond;  ///< mean of the exponential gaps between arrivals
  std::uint64_t seed = 1;
};

/// In shuffled order; each document is asked equally often, but for one. Deterministic for a seed.
Result<std::vector<TraceRequest>> generate_documents(const DocumentsOptions& options,
                                                     const BlockShape& shape,
                                                     const BlockKey& namespace_key);

}  // namespace kvstream
