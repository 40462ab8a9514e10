// Reads the traces that others publish: Mooncake JSON lines, run-coded Claude Code sessions, Azure
// CSV. docs/traces.md describes each, and what is made of it.
#pragma once

#include <string>

#include "kvstream/status.hpp"
#include "replay/text_lines.hpp"
#include "replay/workload.hpp"

namespace kvstream {

/// Reads a trace of any known format, our own included (own_trace.hpp), plain or zstd: the first
/// line tells which it is. Errors are one line that names the file, the line and what is wrong.
Result<Workload> read_trace(const std::string& path);

/// {"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [one a block of
/// 512 tokens, each standing for its whole prefix]}, in order of time.
Result<Workload> read_mooncake(TextLines lines);

/// A line a session: {"block_size": tokens, "requests": [{"in", "out", "hash_runs": [[first id,
/// count], ...]}, or {"type": "subagent", "requests": [...]} ]}. Ids are the session's own. Not
/// timed; requests of a session stand together (interleave() mixes sessions).
Result<Workload> read_claude_code(TextLines lines);

/// TIMESTAMP,ContextTokens,GeneratedTokens: arrivals and lengths; no prompt shares anything.
Result<Workload> read_azure(TextLines lines);

}  // namespace kvstream
