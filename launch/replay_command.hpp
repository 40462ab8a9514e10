// `kvstream replay`.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "launch/bootstrap.hpp"
#include "launch/command_line.hpp"
#include "launch/exit_codes.hpp"
#include "launch/job.hpp"
#include "launch/replay_settings.hpp"
#include "launch/serving_settings.hpp"
#include "replay/virtual_replay.hpp"

namespace kvstream {

/// Adds the subcommand to `app`, holds what was parsed, and runs it. Lives as long as the parse.
class ReplayCommand {
 public:
  explicit ReplayCommand(CLI::App& app);
  bool chosen() const { return app_->parsed(); }
  const SettingsTable& table() const { return table_; }
  int run();

 private:
  Status derive_model();
  Status prepare(const Group& group, ReplayOptions& options, JobOptions& job);
  void fill_options(ReplayOptions& options) const;
  int run_in(Bootstrap& bootstrap);
  // virtual_command.cpp
  int run_virtual();
  Result<VirtualReplay> prepare_virtual_replay();
  Result<VirtualWork> virtual_work(const VirtualOptions& options, std::uint32_t pair,
                                   std::optional<double> rate_per_s) const;

  CLI::App* app_;
  EngineConfig config_;
  ReplayConfig replay_;
  ServingConfig serving_;
  ServingModel model_;  ///< of engine vllm
  SettingsTable table_;
  CommandLine line_;
};

/// What `kvstream replay` and `kvstream bench step` do once they know what to play.
int play_and_report(Bootstrap& bootstrap, Job& job, ReplayOptions options, ProgressMode progress,
                    const std::string& json_path, const nlohmann::json& config);

/// Table and JSON, each where it was asked for; returns the exit code.
int print_outcome(Result<ReplayOutcome>& outcome, std::uint32_t rank, const std::string& json_path,
                  const nlohmann::json& config);

/// Sets what follows from the shape and the engine's settings.
void derive_settings(EngineConfig& config, const SettingsTable& table, const BlockShape& shape);

}  // namespace kvstream
