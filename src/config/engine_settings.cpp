// The one table of the engine's settings, and the names of its enums' values.
#include <array>

#include "config/settings.hpp"

namespace kvstream {
namespace {

using Names = std::string_view;
constexpr std::array<Names, 5> kReadPolicyNames = {"serial", "pooled", "static", "shortest-queue",
                                                   "completion"};
constexpr std::array<Names, 2> kQueueMeasureNames = {"bytes", "finish"};
constexpr std::array<Names, 2> kSerialDepthNames = {"1", "request"};
constexpr std::array<Names, 3> kWriteTimingNames = {"deferred", "after-forward", "inline"};
constexpr std::array<Names, 3> kReplicationNames = {"none", "one", "all"};
constexpr std::array<Names, 3> kLandingNames = {"auto", "direct", "staged"};

template <class E, std::size_t N>
std::string_view name_of(E value, const std::array<Names, N>& names) noexcept {
  const auto index = static_cast<std::size_t>(value);
  return index < N ? names[index] : "?";
}

void add_mode(SettingsTable& table, Mode& mode) {
  using enum ValueKind;
  table.add({.name = "policy",
             .kind = kChoice,
             .help = "how the blocks of a step are spread over the tiers that hold them",
             .target = choice_target(&mode.policy, kReadPolicyNames)});
  table.add({.name = "queue-measure",
             .kind = kChoice,
             .help = "what shortest-queue compares: queued bytes, or the expected finish",
             .target = choice_target(&mode.queue_measure, kQueueMeasureNames)});
  table.add({.name = "serial-depth",
             .kind = kChoice,
             .help = "what serial has in flight: one block, or all blocks of one request",
             .target = choice_target(&mode.serial_depth, kSerialDepthNames)});
  table.add({.name = "claim-blocks",
             .kind = kCount,
             .help = "blocks that a tier claims at once",
             .unit = "blocks",
             .target = &mode.claim_blocks,
             .min = 1,
             .max = 1024});
  table.add({.name = "use-tiers",
             .kind = kNames,
             .help = "names of the tiers to read from and write to; empty = all",
             .target = &mode.use_tiers});
  table.add({.name = "writes",
             .kind = kChoice,
             .help = "when new blocks are written: after the forward pass and behind reads, all of "
                     "them before the next step, or before the step's own requests are answered",
             .target = choice_target(&mode.writes, kWriteTimingNames)});
  table.add({.name = "replication",
             .kind = kChoice,
             .help = "copies of a new block: none, one in the tier that is free next, one in each",
             .target = choice_target(&mode.replication, kReplicationNames)});
  table.add({.name = "no-cache",
             .kind = kSwitch,
             .help = "look nothing up and save nothing",
             .target = &mode.no_cache});
}

void add_limits(SettingsTable& table, Settings& settings) {
  using enum ValueKind;
  table.add({.name = "pool",
             .kind = kSize,
             .help = "memory of a rank for staging slabs",
             .unit = "B",
             .target = &settings.pool_bytes,
             .min = 1});
  table.add({.name = "block-max",
             .kind = kSize,
             .help = "the largest block",
             .unit = "B",
             .target = &settings.block_bytes_max,
             .min = 1,
             .max = 1U << 30U});
  table.add({.name = "copy-threads",
             .kind = kCount,
             .help = "threads of a rank that verify and place blocks",
             .unit = "threads",
             .target = &settings.copy_threads,
             .min = 1,
             .max = 64});
  table.add({.name = "catalog-entries-max",
             .kind = kCount,
             .help = "copies of blocks that a rank remembers",
             .unit = "copies",
             .target = &settings.catalog_entries_max,
             .min = 1});
  table.add({.name = "leases-max",
             .kind = kCount,
             .help = "look-ups that may hold a lease at the same time",
             .unit = "leases",
             .target = &settings.leases_max,
             .min = 1});
  table.add({.name = "lease",
             .kind = kDuration,
             .help = "how long a look-up keeps what it found from being evicted",
             .unit = "s",
             .target = &settings.lease_ns,
             .min = 1});
  table.add({.name = "step-deadline",
             .kind = kDuration,
             .help = "after which a step ends without the blocks that are missing",
             .unit = "s",
             .target = &settings.step_deadline_ns,
             .min = 1});
}

void add_behaviour(SettingsTable& table, Settings& settings) {
  using enum ValueKind;
  table.add({.name = "landing",
             .kind = kChoice,
             .help = "where bytes land: direct in their destination where that is safe, always "
                     "direct where the tier can, always in a staging slab",
             .target = choice_target(&settings.landing, kLandingNames)});
  table.add({.name = "write-share-min",
             .kind = kNumber,
             .help = "share of a device's bytes that writes get while reads wait",
             .target = &settings.write_share_min,
             .min = 0,
             .max = 0.9});
  table.add({.name = "write-queue-max",
             .kind = kSize,
             .help = "new blocks that may wait to be written; 0 = a quarter of the pool",
             .unit = "B",
             .target = &settings.write_queue_bytes_max});
  table.add({.name = "hedge",
             .kind = kSwitch,
             .help = "read a block again from another tier when its read is late",
             .target = &settings.hedge});
  table.add({.name = "record-steps",
             .kind = kSwitch,
             .help = "keep a record of each step (timelines and the bound need it)",
             .target = &settings.record_steps});
}

}  // namespace

std::string_view to_string(ReadPolicy value) noexcept { return name_of(value, kReadPolicyNames); }
std::string_view to_string(QueueMeasure value) noexcept {
  return name_of(value, kQueueMeasureNames);
}
std::string_view to_string(SerialDepth value) noexcept { return name_of(value, kSerialDepthNames); }
std::string_view to_string(WriteTiming value) noexcept { return name_of(value, kWriteTimingNames); }
std::string_view to_string(Replication value) noexcept { return name_of(value, kReplicationNames); }
std::string_view to_string(Landing value) noexcept { return name_of(value, kLandingNames); }

void add_mode_settings(SettingsTable& table, Mode& mode) { add_mode(table, mode); }

void add_engine_settings(SettingsTable& table, EngineConfig& config) {
  add_mode(table, config.mode);
  add_limits(table, config.settings);
  add_behaviour(table, config.settings);
  table.add({.name = "node",
             .kind = ValueKind::kText,
             .help = "the node's name; one machine can stand for several; auto = the host name",
             .target = &config.node});
  table.add({.name = "log",
             .kind = ValueKind::kText,
             .help = "error, warn, info, debug or off",
             .target = &config.log});
}

}  // namespace kvstream
