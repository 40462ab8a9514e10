// `kvstream trace`: what a trace or a generator holds.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "launch/command_line.hpp"
#include "launch/replay_settings.hpp"

namespace kvstream {

/// Loads a workload as a replay would (same settings), and prints lengths, sharing, reuse and
/// arrivals as text or JSON; --out writes it in our own format. Touches no tier.
class TraceCommand {
 public:
  explicit TraceCommand(CLI::App& app);
  bool chosen() const { return app_->parsed(); }
  int run();

 private:
  Status describe();

  CLI::App* app_;
  EngineConfig config_;
  ReplayConfig replay_;
  SettingsTable table_;
  CommandLine line_;
  std::string out_path_;
};

}  // namespace kvstream
