// The kvstream program: subcommands and nothing else.
#include <fmt/format.h>

#include <algorithm>
#include <exception>

#include "launch/bench_command.hpp"
#include "launch/bootstrap.hpp"
#include "launch/inspect_command.hpp"
#include "launch/plot_command.hpp"
#include "launch/replay_command.hpp"
#include "launch/trace_command.hpp"

namespace kvstream {
namespace {

int run(int argc, char** argv) {
  CLI::App app("KVStream: reads of a step pooled over storage tiers, claimed by completion.");
  app.set_version_flag("--version",
                       fmt::format("kvstream {}\n{}", KVSTREAM_VERSION, bootstrap_features()));
  app.require_subcommand(1);
  ReplayCommand replay(app);
  BenchCommand bench(app);
  InspectCommand inspect(app);
  PlotCommand plot(app);
  TraceCommand trace(app);
  // The switches of the subcommands have the same names, or names that only one of them has.
  auto words = join_switches(argc, argv, replay.table());
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i - 1] == "bench" && words[i] == "--fit") words[i] = "fit";
  }
  std::reverse(words.begin(), words.end());
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& wanted) {
    return app.exit(wanted);
  } catch (const CLI::ParseError& error) {
    print_error({Code::kInvalidArgument, fmt::format("{} (see --help)", error.what())},
                launcher_rank());
    return kExitBadInput;
  }
  if (replay.chosen()) return replay.run();
  if (bench.chosen()) return bench.run();
  if (inspect.chosen()) return inspect.run();
  if (trace.chosen()) return trace.run();
  return plot.run();
}

}  // namespace
}  // namespace kvstream

int main(int argc, char** argv) {
  try {
    return kvstream::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "kvstream: {}\n", error.what());
    return kvstream::kExitWrong;
  }
}
