#include "replay/sharing.hpp"

#include <absl/container/flat_hash_map.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "replay/random.hpp"
#include "replay/streams.hpp"

namespace kvstream {
namespace {

constexpr int kStepsMax = 60;           // of the bisection
constexpr double kNearEnough = 0.0002;  // then it stops early

/// A list as numbers of blocks, so that a cut can be judged without hashing anything again.
class NumberedList {
 public:
  NumberedList(const Workload& workload, const CutOptions& options)
      : block_tokens_(options.block_tokens) {
    BlockShape shape;
    shape.block_tokens = options.block_tokens;
    RequestMaker maker(workload, shape, options.tail, BlockKey{});
    absl::flat_hash_map<BlockKey, std::uint32_t> numbers;
    Random random(options.seed);
    for (const auto& request : workload.requests) {
      for (const auto& key : maker.make(request).keys) {
        const auto next = static_cast<std::uint32_t>(numbers.size());
        blocks_.push_back(numbers.try_emplace(key, next).first->second);
      }
      ends_.push_back(blocks_.size());
      inputs_.push_back(request.input_tokens);
      points_.push_back(1.0 - random.unit());
      tokens_ += request.input_tokens;
    }
    seen_.resize(numbers.size());
  }

  /// Tokens of request `i` that stay what they were.
  std::uint32_t kept_tokens(std::size_t i, double factor) const {
    return static_cast<std::uint32_t>(inputs_[i] * std::min(1.0, factor * points_[i]));
  }

  /// What measure_sharing() gives for the list with all points scaled by `factor`: only blocks that
  /// end before a request's point keep their key.
  double sharing(double factor) {
    std::fill(seen_.begin(), seen_.end(), false);
    std::uint64_t shared = 0;
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ends_.size(); ++i) {
      const std::uint32_t kept = kept_tokens(i, factor);
      const std::size_t blocks = ends_[i] - begin;
      const std::size_t whole =
          kept == inputs_[i] ? blocks : std::min<std::size_t>(blocks, kept / block_tokens_);
      for (std::size_t b = 0; b < whole; ++b) {
        if (seen_[blocks_[begin + b]]) shared += tokens_of(i, b);
      }
      for (std::size_t b = 0; b < whole; ++b) seen_[blocks_[begin + b]] = true;
      begin = ends_[i];
    }
    return tokens_ == 0 ? 0.0 : static_cast<double>(shared) / static_cast<double>(tokens_);
  }

 private:
  std::uint64_t tokens_of(std::size_t i, std::size_t block) const {
    return std::min<std::uint64_t>(block_tokens_, inputs_[i] - block * block_tokens_);
  }

  std::uint32_t block_tokens_;
  std::vector<std::uint32_t> blocks_, inputs_;
  std::vector<std::size_t> ends_;
  std::vector<double> points_;
  std::vector<bool> seen_;
  std::uint64_t tokens_ = 0;
};

void keep_only(WorkloadRequest& request, std::uint32_t kept, std::uint64_t stream) {
  if (kept == request.input_tokens) return;
  std::uint32_t left = kept;
  std::size_t runs = 0;
  for (; runs < request.prompt.size() && left > 0; ++runs) {
    TokenRun& run = request.prompt[runs];
    run.count = std::min(run.count, left);
    left -= run.count;
  }
  request.prompt.resize(runs);
  request.prompt.push_back({stream, 0, request.input_tokens - kept});
  request.prompt.shrink_to_fit();
}

}  // namespace

double measure_sharing(std::span<const TraceRequest> requests, const BlockShape& shape) {
  absl::flat_hash_map<BlockKey, std::uint32_t> first_seen;
  std::uint64_t shared = 0, all = 0;
  std::uint32_t number = 0;
  for (const auto& request : requests) {
    std::uint32_t left = request.input_tokens;
    for (const auto& key : request.keys) {
      const std::uint32_t tokens = std::min(left, shape.block_tokens);
      left -= tokens;
      if (first_seen.try_emplace(key, number).first->second != number) shared += tokens;
    }
    all += request.input_tokens;
    ++number;
  }
  return all == 0 ? 0.0 : static_cast<double>(shared) / static_cast<double>(all);
}

Result<Workload> cut_sharing(Workload workload, const CutOptions& options) {
  NumberedList list(workload, options);
  const double uncut = list.sharing(HUGE_VAL);
  if (std::abs(uncut - options.target) <= kNearEnough) return workload;
  if (uncut < options.target) {
    if (options.target - uncut <= options.tolerance) return workload;
    return failure(Code::kInvalidArgument,
                   fmt::format("{} shares {:.4f} of its prompt tokens over {} requests in blocks "
                               "of {} tokens, less than the {:.4f} that is wanted; ask for less, "
                               "or for more requests",
                               workload.name, uncut, workload.requests.size(), options.block_tokens,
                               options.target));
  }
  // Half of the search lies below a factor of 1; at 1 and more some requests stay whole.
  const auto factor_at = [](double place) { return place / (1.0 - place); };
  double low = 0, high = 1, best = 0, best_miss = std::abs(list.sharing(0) - options.target);
  for (int step = 0; step < kStepsMax && best_miss > kNearEnough; ++step) {
    const double place = (low + high) / 2;
    const double found = list.sharing(factor_at(place));
    const double miss = std::abs(found - options.target);
    if (miss < best_miss) {
      best = factor_at(place);
      best_miss = miss;
    }
    (found < options.target ? low : high) = place;
  }
  if (best_miss > options.tolerance) {
    return failure(Code::kInvalidArgument,
                   fmt::format("{} with its {} requests comes no nearer than {:.4f} to a sharing "
                               "of {:.4f}; ask for more requests, or another target",
                               workload.name, workload.requests.size(), best_miss, options.target));
  }
  const std::uint64_t salt = mix64(options.seed) ^ stream_of("cut off");
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    keep_only(workload.requests[i], list.kept_tokens(i, best), fresh_stream(salt, i));
  }
  return workload;
}

}  // namespace kvstream
