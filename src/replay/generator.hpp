// Workloads that are made up, by name in place of a file. docs/traces.md gives every assumption.
#pragma once

#include <cstdint>
#include <vector>

#include "kvstream/status.hpp"
#include "replay/trace.hpp"
#include "replay/workload.hpp"

namespace kvstream {

/// Requests that a generator makes at most.
inline constexpr std::uint64_t kGeneratedRequestsMax = 1'000'000;

/// `documents`: documents that are asked several times. Each question's prompt is a whole document
/// and the question behind it, so two questions about one document share its full blocks.
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
Result<Workload> documents_workload(const DocumentsOptions& options);
/// The same as blocks, the partial last one kept.
Result<std::vector<TraceRequest>> generate_documents(const DocumentsOptions& options,
                                                     const BlockShape& shape,
                                                     const BlockKey& namespace_key);

enum class DocumentOrder : std::uint8_t { kShuffled, kByDocument };

/// `loogle`: long documents and their questions, as many and as long as the LooGLE benchmark (Li et
/// al. 2023) publishes. Not timed.
struct LoogleOptions {
  DocumentOrder order = DocumentOrder::kShuffled;
  std::uint64_t seed = 1;
};
/// 776 documents, 6,448 questions.
Workload loogle_workload(const LoogleOptions& options);

/// `agent`: a coding agent's conversations. A prompt is what tools and system say, the
/// conversation's own context, and all turns so far; each turn adds the last output and what a tool
/// or the user answers. Not timed.
struct AgentOptions {
  std::uint64_t requests = 4000;
  /// Share of prompt tokens that lie in blocks of 64 that an earlier prompt has; met to +-0.5
  /// points by cutting (sharing.hpp). 1 = as it comes.
  double sharing = 1.0;
  std::uint32_t open_conversations = 64;  ///< at a time; when one ends, the next begins
  std::uint64_t seed = 1;
};
/// kInvalidArgument when the list shares less than was asked for as it comes.
Result<Workload> agent_workload(const AgentOptions& options);

}  // namespace kvstream
