// What is asked, before it is cut into blocks: prompts as runs of texts, arrivals, conversations.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvstream/block.hpp"
#include "kvstream/clock.hpp"
#include "replay/trace.hpp"

namespace kvstream {

/// Tokens [first, first + count) of an endless made-up text. Equal runs are equal tokens; different
/// streams share none.
struct TokenRun {
  std::uint64_t stream = 0;
  std::uint32_t first = 0, count = 0;

  bool operator==(const TokenRun&) const = default;
};

/// One request. The counts of `prompt` add up to input_tokens.
struct WorkloadRequest {
  Nanos arrival_ns = 0;  ///< since the first request; 0 where the workload is not timed
  std::uint32_t input_tokens = 0, output_tokens = 0;
  std::uint64_t conversation = 0;  ///< requests of one conversation come in the list's order
  std::vector<TokenRun> prompt;

  bool operator==(const WorkloadRequest&) const = default;
};

/// What the runs say about what stands before them.
enum class Naming : std::uint8_t {
  kContent,     ///< a run is its own tokens: a block's key chains over its parent's
  kWholePrefix  ///< a stream names everything before it too (Mooncake): a key covers its own runs
};

/// Requests in the order in which they come. Owned by whoever loads it; immutable once loaded.
struct Workload {
  std::string name;
  std::vector<WorkloadRequest> requests;
  Naming naming = Naming::kContent;
  bool timed = false;                ///< its arrivals are its own
  std::uint32_t content_tokens = 1;  ///< below this length nothing is known about what is shared

  bool operator==(const Workload&) const = default;
};

/// What becomes of a last block that is not full.
enum class Tail : std::uint8_t {
  kKeep,  ///< a block of its own, under a key of its own
  kDrop   ///< never cached, as vLLM and LMCache do by default: no key, always computed
};

/// Cuts prompts into blocks, one request at a time: for lists that are too long to hold as keys.
/// The workload outlives it. One thread.
class RequestMaker {
 public:
  RequestMaker(const Workload& workload, const BlockShape& shape, Tail tail,
               const BlockKey& namespace_key);
  TraceRequest make(const WorkloadRequest& request);

 private:
  BlockKey key_of(std::span<const TokenRun> runs, std::uint32_t tokens);
  BlockKey hash(const BlockKey& before, std::span<const TokenRun> runs);

  BlockShape shape_;
  Tail tail_;
  Naming naming_;
  bool whole_ids_;  ///< a block is what one id of kWholePrefix stands for
  BlockKey namespace_, parent_;
  std::vector<std::uint8_t> buffer_;
};

/// Cuts the prompts into blocks of the shape. Two blocks have one key if and only if their tokens
/// and all tokens before them are the same (128-bit hashes). With kWholePrefix and blocks of
/// content_tokens the keys are those of put_keys(). Ranks stay 0.
std::vector<TraceRequest> make_requests(const Workload& workload, const BlockShape& shape,
                                        Tail tail, const BlockKey& namespace_key);

}  // namespace kvstream
