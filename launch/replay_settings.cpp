#include "launch/replay_settings.hpp"

#include <fmt/format.h>

#include <array>
#include <iterator>

#include "core/keys.hpp"
#include "core/units.hpp"
#include "replay/trace_reader.hpp"

namespace kvstream {
namespace {

constexpr std::array<std::string_view, 2> kArrivalsNames = {"closed", "trace"};
constexpr std::array<std::string_view, 3> kProgressNames = {"auto", "always", "never"};
constexpr std::uint32_t kQuestionsPerDocument = 6;
constexpr std::uint32_t kBlockBytesMax = 256U << 20U;

void add_trace_settings(SettingsTable& table, ReplayConfig& config) {
  using enum ValueKind;
  table.add({.name = "trace",
             .kind = kText,
             .help = "a Mooncake JSONL file, or `documents`: the built-in generator",
             .target = &config.trace});
  table.add({.name = "requests",
             .kind = kCount,
             .help = "requests to play; 0 = all that the trace has",
             .target = &config.requests});
  table.add({.name = "skip",
             .kind = kCount,
             .help = "requests of the trace before the first that is played",
             .target = &config.skip});
  table.add({.name = "prefill-store",
             .kind = kSwitch,
             .help = "first put into the tiers what the skipped requests would have left there",
             .target = &config.prefill_store});
  table.add({.name = "documents",
             .kind = kCount,
             .help = "of the generator: documents that are asked several times",
             .target = &config.documents,
             .min = 1,
             .max = 1e6});
  table.add({.name = "document-tokens",
             .kind = kCount,
             .help = "of the generator: mean length of a document",
             .unit = "tokens",
             .target = &config.document_tokens,
             .min = 1,
             .max = 1e7});
  table.add({.name = "seed", .kind = kCount, .help = "of the generator", .target = &config.seed});
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
             .kind = kChoice,
             .help = "closed: the next batch when the last has ended; trace: at the trace's times",
             .target = choice_target(&config.arrivals, kArrivalsNames)});
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
             .help = "tokens of a full block; must be the trace's",
             .unit = "tokens",
             .target = &config.block_tokens,
             .min = 1,
             .max = 1e6});
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

}  // namespace

void add_replay_settings(SettingsTable& table, ReplayConfig& config) {
  using enum ValueKind;
  add_trace_settings(table, config);
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

Result<LoadedTrace> load_trace(const ReplayConfig& config, const BlockShape& shape,
                               const BlockKey& namespace_key) {
  const std::uint64_t first = config.prefill_store ? 0 : config.skip;
  Result<std::vector<TraceRequest>> all = std::vector<TraceRequest>{};
  if (config.trace == "documents") {
    DocumentsOptions options;
    options.documents = config.documents;
    options.document_tokens = config.document_tokens;
    options.seed = config.seed;
    options.requests = config.requests != 0
                           ? config.skip + config.requests
                           : config.skip + std::uint64_t{kQuestionsPerDocument} * config.documents;
    all = generate_documents(options, shape, namespace_key);
    if (all && first > 0)
      all->erase(all->begin(), all->begin() + static_cast<std::ptrdiff_t>(first));
  } else {
    TraceRange range{first, ~std::uint64_t{0}};
    if (config.requests != 0) range.count_max = config.requests + (config.skip - first);
    all = read_mooncake(config.trace, shape, namespace_key, range);
  }
  if (!all) return failure(all.error());
  LoadedTrace trace;
  const std::uint64_t earlier = config.skip - first;
  if (all->size() <= earlier) {
    return failure(Code::kInvalidArgument,
                   fmt::format("{} has {} requests, none behind the first {} that are skipped",
                               config.trace, all->size(), config.skip));
  }
  const auto split = all->begin() + static_cast<std::ptrdiff_t>(earlier);
  trace.earlier.assign(std::make_move_iterator(all->begin()), std::make_move_iterator(split));
  trace.requests.assign(std::make_move_iterator(split), std::make_move_iterator(all->end()));
  // What was skipped is over: the first request that is played comes at 0.
  const Nanos begun = trace.requests.front().arrival_ns;
  for (auto& request : trace.requests) request.arrival_ns -= begun;
  return trace;
}

}  // namespace kvstream
