// The settings that the replay adds to the engine's.
#pragma once

#include <cstdint>
#include <string>

#include "config/settings.hpp"
#include "launch/progress_bar.hpp"
#include "replay/generator.hpp"
#include "replay/loop.hpp"
#include "replay/replay.hpp"

namespace kvstream {

/// Targets of the table's entries; turned into options by the functions below.
struct ReplayConfig {
  std::string trace = "documents";
  std::uint64_t requests = 0;  ///< 0 = all (generator: six a document)
  std::uint64_t skip = 0;
  bool prefill_store = false;
  std::uint32_t batch = 8;
  Arrivals arrivals = Arrivals::kClosed;
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
/// The skipped requests (when `prefill_store`) and those that are played.
struct LoadedTrace {
  std::vector<TraceRequest> earlier, requests;
};
Result<LoadedTrace> load_trace(const ReplayConfig& config, const BlockShape& shape,
                               const BlockKey& namespace_key);

}  // namespace kvstream
