#include "replay/contents.hpp"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <thread>

#include "core/checksum.hpp"
#include "replay/agreement.hpp"
#include "replay/payload.hpp"

namespace kvstream {
namespace {

constexpr Nanos kRestPoll_ns = 2 * kMillisecond;
constexpr Nanos kRefresh_ns = 30 * kSecond;
constexpr std::uint32_t kPieces = 4;
constexpr std::uint32_t kDropPassesMax = 16;

bool key_before(const BlockPlace& a, const BlockPlace& b) { return a.key < b.key; }

/// A run of blocks of one mask in memory of its own, and the ticket of its save.
struct Piece {
  std::vector<std::byte> memory;
  std::vector<SaveBlock> blocks;
  std::vector<ConstSpan> spans;
  std::uint64_t tiers = 0;
  std::size_t used_bytes = 0;
  SaveTicket ticket;
};

/// Offers blocks no faster than the engine's queue takes them. One thread.
class PacedWriter {
 public:
  PacedWriter(Engine& engine, const PutOptions& options)
      : engine_(engine), options_(options), deadline_(options.clock->now() + options.timeout_ns) {
    const std::uint64_t slots =
        std::max<std::uint64_t>(kPieces, options.queue_bytes / options.block_bytes_max);
    blocks_max_ = std::max<std::uint64_t>(1, slots / kPieces);
    for (auto& piece : pieces_) piece.memory.resize(blocks_max_ * options.block_bytes_max);
  }

  Status offer(const BlockPlace& place, std::uint64_t tiers) {
    Piece* piece = &pieces_[at_];
    if (piece->tiers != tiers || piece->blocks.size() == blocks_max_) {
      if (Status status = flush(); !status.is_ok()) return status;
      piece = &pieces_[at_];
      piece->tiers = tiers;
    }
    std::byte* to = piece->memory.data() + piece->used_bytes;
    fill_payload(place.key, {to, place.size_bytes});
    piece->used_bytes += options_.block_bytes_max;
    piece->spans.push_back({to, place.size_bytes});
    piece->blocks.push_back({place.key, place.size_bytes, {}, 0});
    return Status::ok();
  }

  /// Sends the piece that is being filled; waits until the next one may be filled.
  Status flush() {
    Piece& piece = pieces_[at_];
    if (!piece.blocks.empty()) {
      for (std::size_t i = 0; i < piece.blocks.size(); ++i)
        piece.blocks[i].from = {&piece.spans[i], 1};
      piece.ticket = engine_.save_step({piece.blocks, piece.tiers});
      at_ = (at_ + 1) % kPieces;
    }
    return settle(pieces_[at_]);
  }

  Status finish() {
    if (Status status = flush(); !status.is_ok()) return status;
    for (auto& piece : pieces_) {
      if (Status status = settle(piece); !status.is_ok()) return status;
    }
    return Status::ok();
  }

 private:
  Status settle(Piece& piece) {
    while (piece.ticket) {
      const Nanos now = options_.clock->now();
      if (options_.stop != nullptr && options_.stop->load()) return {Code::kClosed, "interrupted"};
      if (now >= deadline_) {
        return {Code::kTimedOut, "the tiers did not take " + std::to_string(piece.blocks.size()) +
                                     " blocks in time while contents were being written"};
      }
      if (piece.ticket->wait_done(std::min(deadline_, now + 100 * kMillisecond))) break;
    }
    piece.ticket.reset();
    piece.blocks.clear();
    piece.spans.clear();
    piece.used_bytes = 0;
    return Status::ok();
  }

  Engine& engine_;
  const PutOptions& options_;
  Nanos deadline_;
  std::uint64_t blocks_max_ = 1;
  std::array<Piece, kPieces> pieces_;
  std::uint32_t at_ = 0;
};

using Masks = absl::flat_hash_map<BlockKey, std::uint64_t>;

Masks masks_of(std::span<const BlockPlace> places) {
  Masks masks;
  masks.reserve(places.size());
  for (const auto& place : places) masks[place.key] |= place.tiers;
  return masks;
}

std::uint64_t count_bits(std::uint64_t mask) {
  return static_cast<std::uint64_t>(std::popcount(mask));
}

/// Copies that are there and not in `wanted`; with an engine, they are dropped.
std::uint64_t leftovers(std::span<const BlockPlace> there, const Masks& wanted, Engine* engine) {
  std::uint64_t count = 0;
  absl::flat_hash_map<std::uint64_t, std::vector<BlockKey>> by_mask;
  for (const auto& place : there) {
    const auto found = wanted.find(place.key);
    const std::uint64_t extra = place.tiers & ~(found == wanted.end() ? 0 : found->second);
    if (extra == 0) continue;
    count += count_bits(extra);
    by_mask[extra].push_back(place.key);
  }
  if (engine != nullptr) {
    for (const auto& [mask, keys] : by_mask) engine->drop(keys, mask);
  }
  return count;
}

/// Writes what `goal` has and the engine has not; says how many copies were offered.
Result<std::uint64_t> write_missing(Engine& engine, std::span<const BlockPlace> wanted,
                                    const PutOptions& options) {
  PacedWriter writer(engine, options);
  const Masks have = masks_of(own_contents(engine));
  std::uint64_t offered = 0, done = 0;
  for (const auto& place : wanted) {
    if (options.progress && (++done & 0xffU) == 0) options.progress(done, wanted.size());
    const auto found = have.find(place.key);
    const std::uint64_t lacking = place.tiers & ~(found == have.end() ? 0 : found->second);
    if (lacking == 0) continue;
    offered += count_bits(lacking);
    if (Status status = writer.offer(place, lacking); !status.is_ok()) return failure(status);
  }
  if (Status status = writer.finish(); !status.is_ok()) return failure(status);
  return offered;
}

}  // namespace

std::vector<BlockPlace> own_contents(const Engine& engine) {
  std::vector<BlockPlace> places;
  for (const auto& entry : engine.contents()) {
    if (entry.own != 0) places.push_back({entry.key, entry.size_bytes, entry.own});
  }
  std::sort(places.begin(), places.end(), key_before);
  return places;
}

Result<PutReport> put_contents(Engine& engine, Group& group, std::span<const BlockPlace> wanted,
                               const PutOptions& options) {
  const Masks goal = masks_of(wanted);
  PutReport report;
  // A tier may hold a block twice (two steps computed it at the same time); each pass drops one.
  for (std::uint32_t pass = 0; pass < kDropPassesMax; ++pass) {
    const std::uint64_t dropped = leftovers(own_contents(engine), goal, &engine);
    if (dropped == 0) break;
    report.dropped += dropped;
  }
  for (std::uint32_t round = 0; round < options.rounds_max; ++round) {
    if (Status status = agree(group, Status::ok(), options.timeout_ns); !status.is_ok()) {
      return failure(status);
    }
    Status mine = engine.refresh(options.clock->now() + kRefresh_ns);
    std::uint64_t offered = 0;
    if (mine.is_ok()) {
      auto written = write_missing(engine, wanted, options);
      if (written)
        offered = *written;
      else
        mine = written.error();
    }
    report.written += offered;
    if (Status status = agree(group, mine, options.timeout_ns); !status.is_ok()) {
      return failure(status);
    }
    auto left = count_all(group, offered, options.timeout_ns);
    if (!left) return failure(left.error());
    if (*left == 0) break;
  }
  const auto there = own_contents(engine);
  const Masks have = masks_of(there);
  report.leftover = leftovers(there, goal, nullptr);
  for (const auto& [key, mask] : goal) {
    const auto found = have.find(key);
    report.missing += count_bits(mask & ~(found == have.end() ? 0 : found->second));
  }
  return report;
}

bool wait_at_rest(const Engine& engine, const Clock& clock, Nanos deadline) {
  for (;;) {
    const EngineStats stats = engine.stats();
    if (stats.reads_in_flight == 0 && stats.writes_in_flight == 0 && stats.leases == 0 &&
        stats.holds == 0) {
      return true;
    }
    if (clock.now() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kRestPoll_ns));
  }
}

Result<std::string> hash_of_keys(Group& group, std::span<Engine* const> engines, Nanos timeout) {
  std::string mine;
  for (const Engine* engine : engines) {
    for (const auto& place : own_contents(*engine)) {
      mine.append(reinterpret_cast<const char*>(place.key.bytes.data()), place.key.bytes.size());
    }
  }
  auto gathered = group.all_gather(mine, timeout);
  if (!gathered) return failure(gathered.error());
  std::vector<BlockKey> keys;
  for (const auto& bytes : gathered->bytes) {
    for (std::size_t at = 0; at + sizeof(BlockKey) <= bytes.size(); at += sizeof(BlockKey)) {
      BlockKey key;
      std::memcpy(key.bytes.data(), bytes.data() + at, sizeof key);
      keys.push_back(key);
    }
  }
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  const auto bytes = std::as_bytes(std::span(keys));
  char text[32];
  std::snprintf(text, sizeof text, "%016llx:%zu", static_cast<unsigned long long>(checksum(bytes)),
                keys.size());
  return std::string(text);
}

}  // namespace kvstream
