// Reads traces in the JSON-lines form that Mooncake publishes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kvstream/status.hpp"
#include "replay/trace.hpp"

namespace kvstream {

struct TraceRange {
  std::uint64_t skip = 0;                       ///< requests before the first that is wanted
  std::uint64_t count_max = ~std::uint64_t{0};  ///< how many are wanted
};

/// One line a request: {"timestamp": ms, "input_length": tokens, "output_length": tokens,
/// "hash_ids": [one a block of block_tokens, each id standing for its whole prefix]}.
/// Reads the lines of `range` and no more. Errors name the file and the line.
Result<std::vector<TraceRequest>> read_mooncake(const std::string& path, const BlockShape& shape,
                                                const BlockKey& namespace_key, TraceRange range);

}  // namespace kvstream
