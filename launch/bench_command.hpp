// `kvstream bench`: small measurements, each of one question.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "client/tier_kinds.hpp"
#include "launch/command_line.hpp"
#include "launch/job.hpp"
#include "launch/replay_settings.hpp"
#include "replay/fit_file.hpp"

namespace kvstream {

/// `bench step`: read steps of a given size whose blocks lie in given tiers, under several
/// policies: what does each policy make of the same devices? The same code as a replay, with a
/// forward pass that takes no time.
/// `bench folder DIR`: how fast can the disk below a folder be read?
/// `bench fit FILE` (or `bench --fit FILE`): what are these tiers, as virtual time models them?
class BenchCommand {
 public:
  explicit BenchCommand(CLI::App& app);
  bool chosen() const { return app_->parsed(); }
  const SettingsTable& table() const { return table_; }
  int run();

 private:
  void add_step(CLI::App& app);
  int run_step();
  int run_step_in(Bootstrap& bootstrap);
  Status prepare(const Group& group, ReplayOptions& options, JobOptions& job);
  int run_folder();
  // fit_command.cpp
  void add_fit(CLI::App& app);
  int run_fit();
  Result<Fit> measure_fit(const TierKinds& kinds);
  int print_fit(const Fit& fit) const;

  CLI::App* app_;
  CLI::App* step_;
  CLI::App* folder_;
  CLI::App* fit_;
  EngineConfig config_;
  SettingsTable table_, fit_table_;
  CommandLine line_, fit_line_;
  std::string fit_path_;
  std::uint64_t block_bytes_ = 1U << 20U;
  std::uint64_t step_bytes_ = 500'000'000;
  std::uint32_t requests_ = 8;  ///< that a step's blocks belong to
  std::uint32_t steps_ = 1;     ///< one after the other, of one side
  std::uint32_t pairs_ = 7;
  std::uint64_t seed_ = 1;
  bool calibrate_ = true;
  std::string held_by_ = "all";
  std::string nominal_;
  std::string bootstrap_ = "auto";
  std::string folder_path_;
  ProgressMode progress_ = ProgressMode::kAuto;
};

}  // namespace kvstream
