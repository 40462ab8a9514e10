#include "replay/workload.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "core/keys.hpp"

namespace kvstream {
namespace {

/// Goes through a prompt block by block; what it gives out does not depend on how the text was cut
/// into runs.
class BlockCutter {
 public:
  explicit BlockCutter(std::span<const TokenRun> prompt) : prompt_(prompt) {}

  /// The runs of the next `tokens` tokens (fewer at the prompt's end). Valid until the next call.
  std::span<const TokenRun> next(std::uint32_t tokens) {
    block_.clear();
    while (tokens > 0 && run_ < prompt_.size()) {
      const TokenRun& run = prompt_[run_];
      const std::uint32_t count = std::min(tokens, run.count - used_);
      add({run.stream, run.first + used_, count});
      tokens -= count;
      used_ += count;
      if (used_ == run.count) {
        ++run_;
        used_ = 0;
      }
    }
    return block_;
  }

 private:
  void add(const TokenRun& piece) {
    if (piece.count == 0) return;
    if (!block_.empty()) {
      TokenRun& last = block_.back();
      if (last.stream == piece.stream && last.first + last.count == piece.first) {
        last.count += piece.count;
        return;
      }
    }
    block_.push_back(piece);
  }

  std::span<const TokenRun> prompt_;
  std::size_t run_ = 0;
  std::uint32_t used_ = 0;
  std::vector<TokenRun> block_;
};

BlockKey id_key(const BlockKey& namespace_key, std::uint64_t id, std::uint32_t tokens,
                std::uint32_t block_tokens) {
  if (tokens == block_tokens) return external_key(namespace_key, id);
  const std::array<std::uint64_t, 2> name{id, tokens};
  return external_key(namespace_key, std::as_bytes(std::span(name)));
}

}  // namespace

RequestMaker::RequestMaker(const Workload& workload, const BlockShape& shape, Tail tail,
                           const BlockKey& namespace_key)
    : shape_(shape),
      tail_(tail),
      naming_(workload.naming),
      whole_ids_(workload.content_tokens == shape.block_tokens),
      namespace_(namespace_key) {}

// SHA-256 of tens of millions of 16-token blocks would be the longest part of loading a list. These
// keys meet nobody else's, so a fast hash of the same width does.
BlockKey RequestMaker::hash(const BlockKey& before, std::span<const TokenRun> runs) {
  static_assert(sizeof(TokenRun) == 16, "runs are hashed as they lie");
  constexpr std::size_t kKeyBytes = sizeof before.bytes;
  buffer_.resize(kKeyBytes + runs.size_bytes());
  std::copy(before.bytes.begin(), before.bytes.end(), buffer_.begin());
  if (!runs.empty()) std::memcpy(buffer_.data() + kKeyBytes, runs.data(), runs.size_bytes());
  XXH128_canonical_t text;
  XXH128_canonicalFromHash(&text, XXH3_128bits(buffer_.data(), buffer_.size()));
  BlockKey key;
  std::memcpy(key.bytes.data(), text.digest, kKeyBytes);
  return key;
}

BlockKey RequestMaker::key_of(std::span<const TokenRun> runs, std::uint32_t tokens) {
  if (naming_ == Naming::kContent) return parent_ = hash(parent_, runs);
  if (whole_ids_ && runs.size() == 1 && runs.front().first == 0) {
    return id_key(namespace_, runs.front().stream, tokens, shape_.block_tokens);
  }
  return hash(namespace_, runs);
}

TraceRequest RequestMaker::make(const WorkloadRequest& from) {
  TraceRequest request;
  request.arrival_ns = from.arrival_ns;
  request.input_tokens = from.input_tokens;
  request.output_tokens = from.output_tokens;
  request.conversation = from.conversation;
  const std::uint32_t full = from.input_tokens / shape_.block_tokens;
  const std::uint32_t rest = tail_ == Tail::kKeep ? from.input_tokens % shape_.block_tokens : 0;
  const std::size_t blocks = full + (rest > 0 ? 1U : 0U);
  request.keys.reserve(blocks);
  request.sizes_bytes.assign(blocks, shape_.block_bytes_max());
  if (rest > 0) request.sizes_bytes.back() = shape_.size_bytes(rest);
  BlockCutter cutter(from.prompt);
  parent_ = namespace_;
  for (std::size_t block = 0; block < blocks; ++block) {
    const std::uint32_t tokens = block < full ? shape_.block_tokens : rest;
    request.keys.push_back(key_of(cutter.next(tokens), tokens));
  }
  return request;
}

std::vector<TraceRequest> make_requests(const Workload& workload, const BlockShape& shape,
                                        Tail tail, const BlockKey& namespace_key) {
  std::vector<TraceRequest> requests;
  requests.reserve(workload.requests.size());
  RequestMaker maker(workload, shape, tail, namespace_key);
  for (const auto& request : workload.requests) requests.push_back(maker.make(request));
  return requests;
}

void put_keys(TraceRequest& request, const BlockKey& namespace_key, const BlockShape& shape,
              const std::vector<std::uint64_t>& ids) {
  request.keys.clear();
  request.sizes_bytes.clear();
  request.keys.reserve(ids.size());
  request.sizes_bytes.reserve(ids.size());
  std::uint32_t left = request.input_tokens;
  for (const std::uint64_t id : ids) {
    const std::uint32_t tokens = std::min(left, shape.block_tokens);
    request.keys.push_back(id_key(namespace_key, id, tokens, shape.block_tokens));
    request.sizes_bytes.push_back(shape.size_bytes(tokens));
    left -= tokens;
  }
}

}  // namespace kvstream
