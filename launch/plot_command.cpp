#include "launch/plot_command.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "launch/exit_codes.hpp"
#include "plot_script.hpp"

namespace kvstream {
namespace {

/// Ends with the script's own exit code; 127 when there is no python3.
int run_python(const std::vector<std::string>& arguments) {
  std::vector<char*> words;
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execvp(words.front(), words.data());
    ::_exit(127);
  }
  int state = 0;
  if (child < 0) return 127;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(state) ? WEXITSTATUS(state) : 1;
}

}  // namespace

PlotCommand::PlotCommand(CLI::App& app)
    : app_(app.add_subcommand("plot",
                              "Draws the sides of one or more runs (their --json files) side "
                              "by side. Needs python3 with matplotlib.")) {
  app_->add_option("FILE", files_, "what `kvstream replay --json` wrote")->required();
  app_->add_option("--out", out_, "the picture: .png, .svg or .pdf")->default_str(out_);
}

int PlotCommand::run() {
  for (const auto& file : files_) {
    if (std::filesystem::exists(file)) continue;
    print_error({Code::kNotFound, "cannot read " + file + ": no such file"}, 0);
    return kExitBadInput;
  }
  // The system's own first: Debian's matplotlib belongs to it.
  for (const char* python : {"/usr/bin/python3", "python3"}) {
    std::vector<std::string> words{python, "-c", kPlotScript, out_};
    words.insert(words.end(), files_.begin(), files_.end());
    const int code = run_python(words);
    if (code != 127 && code != 3) return code;
  }
  print_error(
      {Code::kUnavailable, "no python3 with matplotlib was found (Debian: python3-matplotlib)"}, 0);
  return kExitBadInput;
}

}  // namespace kvstream
