// `kvstream inspect`: what tiers hold.
#pragma once

#include <CLI/CLI.hpp>

#include "launch/command_line.hpp"
#include "launch/replay_settings.hpp"

namespace kvstream {

/// Opens the tiers as a replay would (same --tier, --block-tokens, --scale), and prints per tier
/// the blocks and bytes that it found, as text or as JSON.
class InspectCommand {
 public:
  explicit InspectCommand(CLI::App& app);
  bool chosen() const { return app_->parsed(); }
  const SettingsTable& table() const { return table_; }
  int run();

 private:
  Status inspect();

  CLI::App* app_;
  EngineConfig config_;
  ReplayConfig replay_;
  SettingsTable table_;
  CommandLine line_;
};

}  // namespace kvstream
