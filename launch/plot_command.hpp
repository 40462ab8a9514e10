// `kvstream plot`: policies side by side, as a picture.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace kvstream {

/// Runs launch/plot.py (which travels inside the binary) with python3 and matplotlib.
class PlotCommand {
 public:
  explicit PlotCommand(CLI::App& app);
  bool chosen() const { return app_->parsed(); }
  int run();

 private:
  CLI::App* app_;
  std::vector<std::string> files_;
  std::string out_ = "kvstream.png";
};

}  // namespace kvstream
