// `kvstream replay`.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "launch/bootstrap.hpp"
#include "launch/command_line.hpp"
#include "launch/exit_codes.hpp"
#include "launch/job.hpp"
#include "launch/replay_settings.hpp"

namespace kvstream {

/// Adds the subcommand to `app`, holds what was parsed, and runs it. Lives as long as the parse.
class ReplayCommand {
 public:
  explicit ReplayCommand(CLI::App& app);
  bool chosen() const { return app_->parsed(); }
  const SettingsTable& table() const { return table_; }
  int run();

 private:
  Status prepare(const Group& group, ReplayOptions& options, JobOptions& job);
  void fill_options(ReplayOptions& options) const;
  int run_in(Bootstrap& bootstrap);

  CLI::App* app_;
  EngineConfig config_;
  ReplayConfig replay_;
  SettingsTable table_;
  CommandLine line_;
};

/// What `kvstream replay` and `kvstream bench step` do once they know what to play.
int play_and_report(Bootstrap& bootstrap, Job& job, ReplayOptions options, ProgressMode progress,
                    const std::string& json_path, const nlohmann::json& config);

/// Sets what follows from the shape and the engine's settings.
void derive_settings(EngineConfig& config, const SettingsTable& table, const BlockShape& shape);

}  // namespace kvstream
