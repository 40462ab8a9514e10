#include "launch/replay_settings.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "core/keys.hpp"
#include "core/units.hpp"
#include "replay/sharing.hpp"
#include "replay/workload_source.hpp"

namespace kvstream {
namespace {

constexpr std::array<std::string_view, 2> kOrderNames = {"shuffled", "by-document"};
constexpr std::array<std::string_view, 2> kTailNames = {"keep", "drop"};
constexpr std::array<std::string_view, 3> kRouterNames = {"round-robin", "prefix", "least-loaded"};
constexpr std::array<std::string_view, 3> kProgressNames = {"auto", "always", "never"};
constexpr std::uint32_t kBlockBytesMax = 256U << 20U;

void add_trace_settings(SettingsTable& table, ReplayConfig& config) {
  using enum ValueKind;
  table.add({.name = "trace",
             .kind = kText,
             .help = "a trace file (docs/traces.md), or a generator: documents, loogle, agent",
             .target = &config.trace});
  table.add({.name = "requests",
             .kind = kCount,
             .help = "requests to play; 0 = all (documents: 6 a document; agent: 4000)",
             .target = &config.requests});
  table.add({.name = "skip",
             .kind = kCount,
             .help = "requests of the trace before the first that is played",
             .target = &config.skip});
  table.add({.name = "prefill-store",
             .kind = kSwitch,
             .help = "first put into the tiers what the skipped requests would have left there",
             .target = &config.prefill_store});
  table.add({.name = "seed",
             .kind = kCount,
             .help = "of generators, drawn arrivals, mixed conversations and cuts",
             .target = &config.seed});
  table.add({.name = "cut-sharing",
             .kind = kNumber,
             .help = "make prompts share only this part of their tokens, all else as it is; 1 = "
                     "as it comes",
             .target = &config.cut_sharing,
             .min = 0,
             .max = 1});
  table.add({.name = "open-conversations",
             .kind = kCount,
             .help = "conversations at a time: of agent, and of traces without arrivals",
             .target = &config.open_conversations,
             .min = 1,
             .max = 1e6});
}

void add_generator_settings(SettingsTable& table, ReplayConfig& config) {
  using enum ValueKind;
  table.add({.name = "documents",
             .kind = kCount,
             .help = "of documents: how many, each asked several times",
             .target = &config.documents,
             .min = 1,
             .max = 1e6});
  table.add({.name = "document-tokens",
             .kind = kCount,
             .help = "of documents: mean length",
             .unit = "tokens",
             .target = &config.document_tokens,
             .min = 1,
             .max = 1e7});
  table.add({.name = "order",
             .kind = kChoice,
             .help = "of loogle: its questions in any order, or document after document",
             .target = choice_target(&config.order, kOrderNames)});
  table.add({.name = "sharing",
             .kind = kNumber,
             .help = "of agent: share of prompt tokens found in an earlier prompt; 1 = as it comes",
             .target = &config.sharing,
             .min = 0,
             .max = 1});
}

void add_load_settings(SettingsTable& table, ReplayConfig& config) {
  using enum ValueKind;
  table.add({.name = "batch",
             .kind = kCount,
             .help = "requests that a step admits at most",
             .target = &config.batch,
             .min = 1,
             .max = 4096});
  table.add({.name = "arrivals",
             .kind = kText,
             .help = "closed or closed:N: the next when one has ended; trace: at the trace's "
                     "times; poisson, gamma: drawn",
             .target = &config.arrivals});
  table.add({.name = "rate",
             .kind = kNumber,
             .help = "arrivals in represented time; 0 = the trace's own",
             .unit = "requests/s",
             .target = &config.rate,
             .min = 0,
             .max = 1e9});
  table.add({.name = "cv",
             .kind = kNumber,
             .help = "of arrivals gamma: coefficient of variation of the gaps",
             .target = &config.cv,
             .min = 0.01,
             .max = 100});
  table.add({.name = "router",
             .kind = kChoice,
             .help = "which rank serves a request",
             .target = choice_target(&config.router, kRouterNames)});
  table.add({.name = "scale",
             .kind = kText,
             .help = "payload and time here over what they represent",
             .target = &config.scale});
  table.add({.name = "kv-bytes-per-token",
             .kind = kCount,
             .help = "of the model, unscaled (131072: Llama-3-8B in bf16)",
             .unit = "B",
             .target = &config.kv_bytes_per_token,
             .min = 1,
             .max = 1e9});
  table.add({.name = "block-tokens",
             .kind = kCount,
             .help = "tokens of a full block",
             .unit = "tokens",
             .target = &config.block_tokens,
             .min = 1,
             .max = 1e6});
  table.add({.name = "tail",
             .kind = kChoice,
             .help = "a prompt's last block that is not full: a block of its own, or never cached",
             .target = choice_target(&config.tail, kTailNames)});
  table.add({.name = "prefill-tokens-per-s",
             .kind = kNumber,
             .help = "how fast a rank's forward pass computes prompts, here",
             .target = &config.prefill_tokens_per_s,
             .min = 1});
  table.add({.name = "decode-tokens-per-s",
             .kind = kNumber,
             .help = "how fast a rank makes output tokens, all requests of a step together, here",
             .target = &config.decode_tokens_per_s,
             .min = 1});
}

void put_ranks(std::span<TraceRequest> requests, std::uint32_t ranks, Router router) {
  RouterOptions options;
  options.router = router;
  const auto rank_of = route(requests, ranks, options);
  for (std::size_t i = 0; i < requests.size(); ++i) requests[i].rank = rank_of[i];
}

}  // namespace

void add_replay_settings(SettingsTable& table, ReplayConfig& config) {
  using enum ValueKind;
  add_trace_settings(table, config);
  add_generator_settings(table, config);
  add_load_settings(table, config);
  table.add({.name = "verify",
             .kind = kSwitch,
             .help = "compare every byte that was read with what its key says it must be",
             .target = &config.verify});
  table.add({.name = "pairs",
             .kind = kCount,
             .help = "how often each side is played, interleaved",
             .target = &config.pairs,
             .min = 1,
             .max = 1000});
  table.add({.name = "calibrate",
             .kind = kSwitch,
             .help = "measure the devices that are not throttled before and after the run",
             .target = &config.calibrate});
  table.add({.name = "timeline",
             .kind = kText,
             .help = "write a Perfetto/Chrome trace of the first pair there",
             .target = &config.timeline});
  table.add({.name = "bootstrap",
             .kind = kText,
             .help = "how ranks find each other: auto, mpi, solo, file:DIR",
             .target = &config.bootstrap});
  table.add({.name = "progress",
             .kind = kChoice,
             .help = "a bar on stderr; auto: when that is a terminal",
             .target = choice_target(&config.progress, kProgressNames)});
}

Result<Scale> parse_scale(std::string_view text) {
  Scale scale;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(','), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto value = parse_fraction(part.substr(std::min(equals + 1, part.size())));
    const std::string_view name = part.substr(0, equals);
    if (!value || (name != "bytes" && name != "time")) {
      return failure(Code::kInvalidArgument,
                     fmt::format("scale: \"{}\" is not like bytes=1/256 or time=1/20", part));
    }
    (name == "bytes" ? scale.bytes : scale.time) = *value;
  }
  return scale;
}

Result<BlockShape> shape_of(const ReplayConfig& config) {
  const auto scale = parse_scale(config.scale);
  if (!scale) return failure(scale.error());
  BlockShape shape;
  shape.block_tokens = config.block_tokens;
  shape.kv_bytes_per_token = static_cast<double>(config.kv_bytes_per_token);
  shape.bytes_scale = scale->bytes;
  const double bytes = shape.kv_bytes_per_token * shape.bytes_scale * config.block_tokens;
  if (bytes > kBlockBytesMax) {
    return failure(
        Code::kInvalidArgument,
        fmt::format("a block of {} tokens would be {:.0f} B here, at most {} are possible: "
                    "lower block-tokens or scale bytes=",
                    config.block_tokens, bytes, kBlockBytesMax));
  }
  return shape;
}

BlockKey namespace_of(const ReplayConfig& config, const BlockShape& shape) {
  Namespace ns;
  ns.model = "replay";
  ns.tokens_per_block = config.block_tokens;
  ns.dtype = fmt::format("{} B a block", shape.block_bytes_max());
  return namespace_key(ns);
}

Result<ArrivalOptions> arrivals_of(const ReplayConfig& config) {
  auto options = parse_arrivals(config.arrivals);
  if (!options) return options;
  options->rate_per_s = config.rate;
  options->cv = config.cv;
  options->seed = config.seed;
  return options;
}

Result<Workload> workload_of(const ReplayConfig& config) {
  const auto arrivals = arrivals_of(config);
  if (!arrivals) return failure(arrivals.error());
  SourceOptions source;
  source.trace = config.trace;
  source.skip = config.skip;
  source.requests = config.requests;
  source.seed = config.seed;
  source.documents = config.documents;
  source.document_tokens = config.document_tokens;
  source.order = config.order;
  source.sharing = config.sharing;
  source.open_conversations = config.open_conversations;
  auto workload = load_workload(source);
  if (!workload) return workload;
  if (!config.prefill_store) drop_first(*workload, config.skip);
  if (config.cut_sharing < 1.0) {
    CutOptions cut;
    cut.target = config.cut_sharing;
    cut.block_tokens = config.block_tokens;
    cut.tail = config.tail;
    cut.seed = config.seed;
    workload = cut_sharing(std::move(*workload), cut);
    if (!workload) return workload;
  }
  if (Status status = assign_arrivals(*workload, *arrivals); !status.is_ok()) {
    return failure(status);
  }
  return workload;
}

Result<LoadedTrace> load_trace(const ReplayConfig& config, const BlockShape& shape,
                               const BlockKey& namespace_key, std::uint32_t ranks) {
  auto all = std::vector<TraceRequest>{};
  {
    const auto workload = workload_of(config);
    if (!workload) return failure(workload.error());
    all = make_requests(*workload, shape, config.tail, namespace_key);
  }
  const std::size_t earlier = config.prefill_store ? config.skip : 0;
  if (config.router == Router::kRoundRobin) {
    put_ranks(std::span(all).first(earlier), ranks, config.router);
    put_ranks(std::span(all).subspan(earlier), ranks, config.router);
  } else {
    put_ranks(all, ranks, config.router);
  }
  const auto split = all.begin() + static_cast<std::ptrdiff_t>(earlier);
  LoadedTrace trace;
  trace.earlier.assign(std::make_move_iterator(all.begin()), std::make_move_iterator(split));
  trace.requests.assign(std::make_move_iterator(split), std::make_move_iterator(all.end()));
  // What was skipped is over: the first request that is played comes at 0.
  const Nanos begun = trace.requests.front().arrival_ns;
  for (auto& request : trace.requests) request.arrival_ns -= begun;
  return trace;
}

}  // namespace kvstream
