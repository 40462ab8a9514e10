// Saves the four blocks of a prefix, finds them again and loads them: a serving engine's step.
// docs/using.md walks through it. Usage: first_step FOLDER
#include <cstdio>
#include <cstring>

#include "client/tier_kinds.hpp"
#include "kvstream/engine.hpp"

using namespace kvstream;

int main(int argc, char** argv) {
  constexpr std::uint32_t kBlockBytes = 256 << 10, kBlocks = 4;
  const Clock& clock = SteadyClock::instance();
  TierContext context{.block_bytes_max = kBlockBytes, .clock = &clock};
  const std::vector<TierSpec> tiers = {
      // name, kind, path, cap_bytes, throttle, nominal rate
      {"host", "host", "", 64 << 20, {}, 0},
      {"nvme0", "nvme", argc > 1 ? argv[1] : ".", 256 << 20, {}, 0}};
  auto parts = make_tier_parts(tiers, context, tier_kinds());
  if (!parts) return std::fprintf(stderr, "%s\n", parts.error().message().c_str()), 1;
  Settings settings{.pool_bytes = 16 << 20, .block_bytes_max = kBlockBytes};
  auto opened = Engine::open({settings, Mode{}, context}, std::move(parts->parts));
  if (!opened) return std::fprintf(stderr, "%s\n", opened.error().message().c_str()), 1;
  Engine& engine = **opened;

  // What a forward pass has made. A key is the engine's own hash of the prefix up to this block.
  std::vector<std::byte> made(kBlockBytes * kBlocks, std::byte{7}), wanted(made.size());
  std::vector<BlockKey> keys(kBlocks);
  std::vector<ConstSpan> from(kBlocks);
  std::vector<Span> into(kBlocks);
  std::vector<SaveBlock> saves(kBlocks);
  std::vector<BlockRequest> loads(kBlocks);
  for (std::uint32_t i = 0; i < kBlocks; ++i) {
    keys[i].bytes[0] = static_cast<std::uint8_t>(i + 1);
    from[i] = {made.data() + i * kBlockBytes, kBlockBytes};
    into[i] = {wanted.data() + i * kBlockBytes, kBlockBytes};
    saves[i] = {.key = keys[i], .size_bytes = kBlockBytes, .from = {&from[i], 1}, .position = i};
    loads[i] = {.key = keys[i], .size_bytes = kBlockBytes, .into = {&into[i], 1}};
  }
  const SaveTicket saved = engine.save_step({.blocks = saves});
  if (!saved->wait_done(clock.now() + 10 * kSecond)) return std::puts("the save took too long"), 1;

  // A later request with the same prefix: how much of it is there, under a lease?
  const LookupRequest question{.keys = keys};
  const LookupAnswer answer = engine.lookup({&question, 1}).front();
  const LoadRequest load{.blocks = {loads.data(), answer.blocks}, .lease = answer.lease};
  const auto ticket = engine.load_step({.requests = {&load, 1}});
  if (!ticket || !(*ticket)->wait_until(clock.now() + 10 * kSecond)) return 1;
  const std::uint32_t usable = (*ticket)->result().requests[0].usable_blocks;
  const bool equal = std::memcmp(made.data(), wanted.data(), made.size()) == 0;
  std::printf("%u of %u blocks loaded, bytes %s\n", usable, kBlocks, equal ? "equal" : "DIFFER");

  const CloseReport report = engine.close(clock.now() + 10 * kSecond);
  return usable == kBlocks && equal && !report.abandoned ? 0 : 1;
}
