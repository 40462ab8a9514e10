// The settings of an engine. src/config/settings.cpp has the one table from which parsing, --help
// and documentation come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvstream/clock.hpp"

namespace kvstream {

/// How the blocks of a step are spread over the tiers that hold them (docs/policies.md).
enum class ReadPolicy : std::uint8_t { kSerial, kPooled, kStatic, kShortestQueue, kCompletion };
/// Of kShortestQueue: by queued bytes (as published), or by earliest expected finish.
enum class QueueMeasure : std::uint8_t { kBytes, kFinish };
enum class SerialDepth : std::uint8_t { kBlock, kRequest };
enum class WriteTiming : std::uint8_t { kDeferred, kAfterForward, kInline };
enum class Replication : std::uint8_t { kNone, kOne, kAll };
enum class Landing : std::uint8_t { kAuto, kDirect, kStaged };

/// What may change between two steps of a running engine; the sides of a comparison differ in it.
struct Mode {
  ReadPolicy policy = ReadPolicy::kCompletion;
  QueueMeasure queue_measure = QueueMeasure::kBytes;
  SerialDepth serial_depth = SerialDepth::kRequest;
  std::uint32_t claim_blocks = 1;
  std::vector<std::string> use_tiers;  ///< names; empty = all
  WriteTiming writes = WriteTiming::kDeferred;
  Replication replication = Replication::kOne;
  bool no_cache = false;  ///< look nothing up, save nothing
};

/// What is fixed when an engine is opened.
struct Settings {
  std::uint64_t pool_bytes = 256ULL << 20U;   ///< staging slabs of this rank
  std::uint32_t block_bytes_max = 1U << 20U;  ///< the largest block
  std::uint32_t copy_threads = 1;             ///< place and verify
  Landing landing = Landing::kAuto;
  std::uint64_t catalog_entries_max = 4'000'000;
  std::uint32_t leases_max = 65'536;
  Nanos lease_ns = 30 * kSecond;
  Nanos step_deadline_ns = 30 * kSecond;    ///< when a StepRequest names none
  double write_share_min = 0.10;            ///< of a device's bytes, while reads wait
  std::uint64_t write_queue_bytes_max = 0;  ///< 0 = a quarter of the pool
  bool hedge = true;
  bool record_steps = false;  ///< keep a StepRecord of each step (replay, timelines)
};

/// Speeds that the `throttled` wrapper imposes; 0 = not at all.
struct ThrottleSpec {
  std::uint64_t read_bytes_per_s = 0;
  std::uint64_t write_bytes_per_s = 0;
  Nanos latency_ns = 0;
  bool any() const { return read_bytes_per_s || write_bytes_per_s || latency_ns; }
};

/// One `[[tier]]` of the configuration, or one `--tier NAME=KIND:PATH,...`.
struct TierSpec {
  std::string name;
  std::string kind;
  std::string path;             ///< {rank}, {node}, {job} already put in
  std::uint64_t cap_bytes = 0;  ///< for all ranks of the node together (host: for each rank)
  ThrottleSpec throttle;
  std::uint64_t nominal_read_bytes_per_s = 0;  ///< what the `static` policy believes; 0 = throttle
};

/// Tier indices are bits of a mask.
inline constexpr std::size_t kTiersMax = 64;

}  // namespace kvstream
