// How much memory may still be taken: beyond it the kernel kills, it does not refuse.
#pragma once

#include <cstdint>
#include <string>

#include "kvstream/status.hpp"

namespace kvstream {

struct MemoryBudget {
  std::uint64_t available_bytes = 0;
  std::string limited_by;  ///< "MemAvailable", or the directory of the control group
};

/// The least of MemAvailable and of what the limits of this process's memory control groups (v1
/// and v2, and those above them) leave. `root` goes before every path: tests put a recorded tree
/// there. What cannot be read does not limit.
MemoryBudget memory_budget(const std::string& root = "");

/// memory_budget().available_bytes.
std::uint64_t memory_available_bytes();

/// kNoSpace, naming both figures and the limit, when `bytes` more would leave less than
/// kMemoryKeptFreeBytes.
Status check_memory(std::uint64_t bytes, const char* what);
inline constexpr std::uint64_t kMemoryKeptFreeBytes = 64ULL << 20U;

}  // namespace kvstream
