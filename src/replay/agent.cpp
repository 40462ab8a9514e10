#include <algorithm>
#include <cmath>
#include <string>

#include "replay/distributions.hpp"
#include "replay/generator.hpp"
#include "replay/sharing.hpp"
#include "replay/streams.hpp"

namespace kvstream {
namespace {

// Medians and means of 400 published Claude Code sessions (28,830 requests); docs/traces.md has the
// figures. The spread of a log-normal is chosen so that its mean is the published one.
constexpr std::uint32_t kSharedTokens = 15'000;  // tools 12,262 + system 2,776
constexpr std::uint32_t kAgents = 4;             // kinds of agent, each with its own shared text
constexpr double kContextMedian = 12'600;        // first prompt 27,645, less the shared text
constexpr double kContextSigma = 0.8;
constexpr double kTurnsMedian = 51, kTurnsSigma = 0.83;     // mean 72
constexpr double kTurnsMax = 330;                           // 99th percentile
constexpr double kOutputMedian = 218, kOutputSigma = 1.2;   // mean 447
constexpr double kAnswerMedian = 264, kAnswerSigma = 1.43;  // mean 732: tool or user, one turn
constexpr std::uint32_t kAddedMax = 16'000;                 // of one output or answer
// A conversation that would grow beyond this ends.
constexpr std::uint32_t kPromptTokensMax = 131'072;

constexpr std::uint32_t kSharingBlockTokens = 64;
constexpr double kSharingTolerance = 0.005;

std::uint32_t tokens(Random& random, double median, double sigma, std::uint32_t max) {
  const double drawn = std::round(log_normal(random, median, sigma));
  return static_cast<std::uint32_t>(std::clamp(drawn, 1.0, static_cast<double>(max)));
}

struct Conversation {
  std::uint64_t number = 0, shared_stream = 0, own_stream = 0;
  std::uint32_t own_tokens = 0;  ///< of the next prompt, behind the shared text
  std::uint32_t turns_left = 0;
};

class Agents {
 public:
  explicit Agents(std::uint64_t seed)
      : random_(seed),
        shared_salt_(mix64(seed) ^ stream_of("agent shared")),
        own_salt_(mix64(seed) ^ stream_of("agent conversations")) {}

  Conversation begin() {
    Conversation next;
    next.number = begun_++;
    next.shared_stream = fresh_stream(shared_salt_, random_.between(0, kAgents - 1));
    next.own_stream = fresh_stream(own_salt_, next.number);
    next.own_tokens = tokens(random_, kContextMedian, kContextSigma, kPromptTokensMax / 2);
    next.turns_left =
        tokens(random_, kTurnsMedian, kTurnsSigma, static_cast<std::uint32_t>(kTurnsMax));
    return next;
  }

  /// Its next request; afterwards it may be over.
  WorkloadRequest turn(Conversation& of) {
    WorkloadRequest request;
    request.input_tokens = kSharedTokens + of.own_tokens;
    request.output_tokens = tokens(random_, kOutputMedian, kOutputSigma, kAddedMax);
    request.conversation = of.number;
    request.prompt = {{of.shared_stream, 0, kSharedTokens}, {of.own_stream, 0, of.own_tokens}};
    of.own_tokens +=
        request.output_tokens + tokens(random_, kAnswerMedian, kAnswerSigma, kAddedMax);
    --of.turns_left;
    return request;
  }

  static bool is_over(const Conversation& conversation) {
    return conversation.turns_left == 0 ||
           kSharedTokens + conversation.own_tokens > kPromptTokensMax;
  }

  std::size_t pick(std::size_t count) { return random_.between(0, count - 1); }

 private:
  Random random_;
  std::uint64_t shared_salt_, own_salt_;
  std::uint64_t begun_ = 0;
};

}  // namespace

Result<Workload> agent_workload(const AgentOptions& options) {
  if (options.requests == 0 || options.requests > kGeneratedRequestsMax ||
      options.open_conversations == 0) {
    return failure(Code::kInvalidArgument,
                   "the agent generator makes 1.." + std::to_string(kGeneratedRequestsMax) +
                       " requests of at least one open conversation; asked for " +
                       std::to_string(options.requests) + " of " +
                       std::to_string(options.open_conversations));
  }
  Workload workload;
  workload.name = "agent";
  workload.requests.reserve(options.requests);
  Agents agents(options.seed);
  std::vector<Conversation> open(options.open_conversations);
  for (auto& conversation : open) conversation = agents.begin();
  while (workload.requests.size() < options.requests) {
    Conversation& conversation = open[agents.pick(open.size())];
    workload.requests.push_back(agents.turn(conversation));
    if (Agents::is_over(conversation)) conversation = agents.begin();
  }
  if (options.sharing >= 1.0) return workload;
  CutOptions cut;
  cut.target = options.sharing;
  cut.tolerance = kSharingTolerance;
  cut.block_tokens = kSharingBlockTokens;
  cut.tail = Tail::kDrop;
  cut.seed = options.seed;
  return cut_sharing(std::move(workload), cut);
}

}  // namespace kvstream
