// The settings that the replay adds to the engine's.
#pragma once

#include <cstdint>
#include <string>

#include "config/settings.hpp"
#include "launch/progress_bar.hpp"
#include "replay/arrivals.hpp"
#include "replay/generator.hpp"
#include "replay/loop.hpp"
#include "replay/replay.hpp"
#include "replay/router.hpp"
#include "replay/workload.hpp"

namespace kvstream {

/// Targets of the table's entries; turned into options by the functions below.
struct ReplayConfig {
  std::string trace = "documents";
  std::uint64_t requests = 0;  ///< 0 = all (documents: six a document; agent: 4,000)
  std::uint64_t skip = 0;
  bool prefill_store = false;
  std::uint32_t batch = 8;
  std::string arrivals = "closed";  ///< as parse_arrivals() takes it
  double rate = 0;
  double cv = 1;
  double sharing = 1;
  double cut_sharing = 1;
  std::uint32_t open_conversations = 64;
  DocumentOrder order = DocumentOrder::kShuffled;
  Tail tail = Tail::kKeep;
  Router router = Router::kRoundRobin;
  std::string scale = "bytes=1/256,time=1/20";
  std::uint64_t kv_bytes_per_token = 131'072;
  std::uint32_t block_tokens = 512;
  double prefill_tokens_per_s = 400'000;
  double decode_tokens_per_s = 60'000;
  bool verify = true;
  std::uint64_t seed = 1;
  std::uint32_t pairs = 1;
  bool calibrate = true;
  std::uint32_t documents = 100;
  std::uint32_t document_tokens = 16'384;
  std::string timeline;
  std::string bootstrap = "auto";
  ProgressMode progress = ProgressMode::kAuto;
};

void add_replay_settings(SettingsTable& table, ReplayConfig& config);

struct Scale {
  double bytes = 1, time = 1;
};
/// "bytes=1/256,time=1/20"; either may be left out and is 1 then.
Result<Scale> parse_scale(std::string_view text);

Result<BlockShape> shape_of(const ReplayConfig& config);
/// Keys of runs with other sizes never meet.
BlockKey namespace_of(const ReplayConfig& config, const BlockShape& shape);
/// The settings' arrivals with rate, cv and seed; errors are the user's.
Result<ArrivalOptions> arrivals_of(const ReplayConfig& config);
/// What the settings name, from the first request that is wanted on (`prefill-store`: from the
/// first of all), with less sharing if that was asked for, and arrivals.
Result<Workload> workload_of(const ReplayConfig& config);

/// The skipped requests (when `prefill_store`) and those that are played, each with its rank.
struct LoadedTrace {
  std::vector<TraceRequest> earlier, requests;
};
Result<LoadedTrace> load_trace(const ReplayConfig& config, const BlockShape& shape,
                               const BlockKey& namespace_key, std::uint32_t ranks);

}  // namespace kvstream
