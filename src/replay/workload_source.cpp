#include "replay/workload_source.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "replay/arrivals.hpp"
#include "replay/trace_reader.hpp"

namespace kvstream {
namespace {

constexpr std::uint64_t kQuestionsPerDocument = 6;
constexpr std::uint64_t kAgentRequests = 4000;

Result<Workload> make_documents(const SourceOptions& options) {
  DocumentsOptions documents;
  documents.documents = options.documents;
  documents.document_tokens = options.document_tokens;
  documents.seed = options.seed;
  documents.requests =
      options.skip +
      (options.requests != 0 ? options.requests : kQuestionsPerDocument * options.documents);
  return documents_workload(documents);
}

Result<Workload> make_agent(const SourceOptions& options) {
  AgentOptions agent;
  agent.requests = options.skip + (options.requests != 0 ? options.requests : kAgentRequests);
  agent.sharing = options.sharing;
  agent.open_conversations = options.open_conversations;
  agent.seed = options.seed;
  return agent_workload(agent);
}

Result<Workload> open_source(const SourceOptions& options) {
  if (options.trace == "documents") return make_documents(options);
  if (options.trace == "loogle") return loogle_workload({options.order, options.seed});
  if (options.trace == "agent") return make_agent(options);
  auto workload = read_trace(options.trace);
  if (!workload || workload->timed) return workload;
  return interleave(std::move(*workload), options.open_conversations, options.seed);
}

}  // namespace

Result<Workload> load_workload(const SourceOptions& options) {
  auto workload = open_source(options);
  if (!workload) return workload;
  auto& requests = workload->requests;
  if (requests.size() <= options.skip) {
    return failure(Code::kInvalidArgument,
                   fmt::format("{} has {} requests, none behind the first {} that are skipped",
                               options.trace, requests.size(), options.skip));
  }
  if (options.requests != 0 && requests.size() - options.skip > options.requests) {
    requests.resize(options.skip + options.requests);
    requests.shrink_to_fit();
  }
  return workload;
}

void drop_first(Workload& workload, std::uint64_t count) {
  auto& requests = workload.requests;
  const auto end = requests.begin() +
                   static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(count, requests.size()));
  requests.erase(requests.begin(), end);
  if (requests.empty()) return;
  const Nanos begun = requests.front().arrival_ns;
  for (auto& request : requests) request.arrival_ns -= begun;
}

}  // namespace kvstream
