// A serving engine's loop under real time.
#include <sys/prctl.h>

#include <algorithm>

#include "replay/contents.hpp"
#include "replay/serving_loop.hpp"

namespace kvstream {
namespace {

constexpr Nanos kSlice_ns = 100 * kMillisecond;  // how soon a signal is noticed
constexpr unsigned long kTimerSlack_ns = 1000;
constexpr Nanos kRest_ns = 120 * kSecond;

}  // namespace

Result<std::vector<RankRun>> play_serving(ServingLoop& loop, const Mode& mode, const Clock& clock,
                                          const std::function<void(std::uint32_t)>& on_progress) {
  std::vector<RankRun> runs(loop.shards().size());
  for (std::size_t shard = 0; shard < runs.size(); ++shard) {
    Engine& engine = *loop.shards()[shard].engine;
    if (Status status = engine.set_mode(mode); !status.is_ok()) return failure(status);
    engine.take_step_records();
    runs[shard].before = engine.stats();
  }
  if (Status status = loop.begin(mode, clock.now()); !status.is_ok()) return failure(status);
  // A forward pass is a timer: the kernel's usual 50 us of slack would lengthen each.
  ::prctl(PR_SET_TIMERSLACK, kTimerSlack_ns);
  while (!loop.done()) {
    const Nanos next = loop.act(clock.now());
    if (loop.done()) break;
    if (on_progress) on_progress(loop.finished());
    const Nanos now = clock.now();
    const Nanos until = std::min(next, now + kSlice_ns);
    if (!loop.work_on_payloads(clock, until) && until > now) loop.wait(clock, until);
  }
  ::prctl(PR_SET_TIMERSLACK, 0);  // back to the usual
  const Nanos rest_until = clock.now() + kRest_ns;
  for (std::size_t shard = 0; shard < runs.size(); ++shard) {
    runs[shard].at_rest = wait_at_rest(*loop.shards()[shard].engine, clock, rest_until);
  }
  RankRun seen = loop.take_run();
  seen.before = std::move(runs.front().before);
  seen.at_rest = runs.front().at_rest;
  runs.front() = std::move(seen);
  for (std::size_t shard = 0; shard < runs.size(); ++shard) {
    Engine& engine = *loop.shards()[shard].engine;
    runs[shard].after = engine.stats();
    runs[shard].records = engine.take_step_records();
  }
  return runs;
}

}  // namespace kvstream
