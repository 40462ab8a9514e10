// What a serving engine's steps compute, and its way into the cache.
#include <algorithm>

#include "replay/payload.hpp"
#include "replay/proc_stats.hpp"
#include "replay/serving_loop.hpp"

namespace kvstream {

/// Each key once: two requests of a step may have computed the same block.
void ServingLoop::plan_saves() {
  fresh_.clear();
  seen_.clear();
  made_ = offered_ = 0;
  if (mode_.no_cache || mode_.replication == Replication::kNone) return;
  for (const ComputedBlocks& run : ended_.computed) {
    const TraceRequest& request = shards_.front().requests[run.request];
    const auto end = std::min<std::size_t>(run.first_block + run.count, request.keys.size());
    for (std::size_t block = run.first_block; block < end; ++block) {
      if (seen_.insert(request.keys[block]).second) {
        fresh_.push_back({run.request, static_cast<std::uint32_t>(block), {}});
      }
    }
  }
}

/// Makes the payload of one new block; false when all are made or memory has to come back first.
bool ServingLoop::make_next() {
  if (made_ == fresh_.size()) return false;
  NewBlock& fresh = fresh_[made_];
  while (fresh.memory.size() < shards_.size()) {
    std::byte* slab = take_memory();
    if (slab == nullptr) return false;
    fresh.memory.push_back(slab);
  }
  if (options_.backing == BufferPool::Backing::kMemory) {
    const double before_s = thread_cpu_s();
    for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
      const TraceRequest& request = shards_[shard].requests[fresh.request];
      fill_payload(request.keys[fresh.block],
                   {fresh.memory[shard], request.sizes_bytes[fresh.block]});
    }
    run_.fill_cpu_s += thread_cpu_s() - before_s;
  }
  ++made_;
  return true;
}

/// Saves that nobody waits for are offered at once, and what the engine's queue does not take is
/// dropped. Others go in parts that fit it, two under way, so that the devices never run dry.
bool ServingLoop::offer() {
  const bool waited = mode_.writes != WriteTiming::kDeferred;
  const std::size_t part =
      waited ? std::max<std::size_t>(
                   1, options_.waited_save_bytes / 2 / std::max(1U, options_.block_bytes_max))
             : fresh_.size();
  while (offered_ < fresh_.size()) {
    make_next();
    while (made_ < std::min(fresh_.size(), offered_ + part) && make_next()) {
    }
    if (made_ == offered_) return false;
    if (waited && saved_.size() >= 2 * shards_.size()) {
      if (!saves_settled()) return false;
    }
    offer_some(std::min(part, made_ - offered_));
  }
  return true;
}

void ServingLoop::offer_some(std::size_t count) {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    std::vector<ConstSpan> spans;
    std::vector<SaveBlock> blocks;
    Saved saved;
    for (std::size_t i = offered_; i < offered_ + count; ++i) {
      const NewBlock& fresh = fresh_[i];
      const TraceRequest& request = shards_[shard].requests[fresh.request];
      spans.push_back({fresh.memory[shard], request.sizes_bytes[fresh.block]});
      blocks.push_back(
          {request.keys[fresh.block], request.sizes_bytes[fresh.block], {}, fresh.block});
      saved.memory.push_back(fresh.memory[shard]);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i].from = {&spans[i], 1};
    saved.ticket = shards_[shard].engine->save_step({blocks, 0});
    saved_.push_back(std::move(saved));
    ++submissions_;
  }
  offered_ += count;
}

/// Staged: the engine's memory is ours again. Waited-for saves stay until they are done.
void ServingLoop::collect_staged() {
  const bool waited = mode_.writes != WriteTiming::kDeferred;
  for (std::size_t i = 0; i < saved_.size();) {
    Saved& saved = saved_[i];
    if (!saved.memory.empty() && saved.ticket->wait_staged(0)) {
      for (std::byte* slab : saved.memory) memory_->give(slab);
      saved.memory.clear();
    }
    if (saved.memory.empty() && (!waited || saved.ticket->wait_done(0))) {
      saved_.erase(saved_.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      ++i;
    }
  }
}

/// Inline and after-forward: nothing that was offered is under way (with more to offer: at most one
/// part is).
bool ServingLoop::saves_settled() {
  collect_staged();
  return offered_ < fresh_.size() ? saved_.size() < 2 * shards_.size() : saved_.empty();
}

}  // namespace kvstream
