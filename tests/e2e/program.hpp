// Runs the kvstream program as a user would, and keeps what it said.
#pragma once

#include <string>
#include <vector>

namespace kvstream::test {

struct Ran {
  int code = -1;  ///< 128 + the signal's number when one ended it
  std::string out, err;
};

/// Ends the program after `limit_s`; `interrupt_after_ms` >= 0 sends it SIGINT so long after its
/// stderr has said `interrupt_when`.
struct RunOptions {
  int limit_s = 60;
  std::string interrupt_when;
  std::vector<std::string> environment;  ///< "NAME=VALUE", besides this process's own
};
Ran run_program(const std::string& program, const std::vector<std::string>& arguments,
                const RunOptions& options = {});
Ran run_kvstream(const std::vector<std::string>& arguments, const RunOptions& options = {});

std::size_t count_lines(const std::string& text);

}  // namespace kvstream::test
