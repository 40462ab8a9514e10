// KVStream's own trace format: whatever a workload can be, as JSON lines. docs/traces.md.
#pragma once

#include <string>

#include "kvstream/status.hpp"
#include "replay/text_lines.hpp"
#include "replay/workload.hpp"

namespace kvstream {

/// The field by which a first line is known as a head.
inline constexpr char kOwnTraceMark[] = "kvstream_trace";

/// An optional head {"kvstream_trace": 1, "name", "naming", "timed", "content_tokens"}, then a line
/// a request {"arrival_s", "input", "output", "conversation", "runs": [[stream, first, count]]}.
/// Without a head: content, tokens known singly, timed if the first request has "arrival_s".
Result<Workload> read_own_trace(TextLines lines);

/// Reads back equal. A path that ends in ".zst" is packed.
Status write_own_trace(const Workload& workload, const std::string& path);

}  // namespace kvstream
