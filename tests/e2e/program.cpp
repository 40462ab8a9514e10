#include "e2e/program.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>

namespace kvstream::test {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void become(const std::string& program, const std::vector<std::string>& arguments,
                         const RunOptions& options, int out, int err) {
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  for (const auto& variable : options.environment) ::putenv(const_cast<char*>(variable.c_str()));
  std::vector<char*> words{const_cast<char*>(program.c_str())};
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  ::execvp(words.front(), words.data());
  ::_exit(127);
}

/// False when the pipe has come to its end.
bool take(int fd, std::string& text) {
  std::array<char, 65536> buffer;
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  if (got > 0) text.append(buffer.data(), static_cast<std::size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

}  // namespace

Ran run_program(const std::string& program, const std::vector<std::string>& arguments,
                const RunOptions& options) {
  Ran ran;
  int out[2], err[2];
  if (::pipe2(out, O_CLOEXEC) != 0 || ::pipe2(err, O_CLOEXEC) != 0) return ran;
  const pid_t child = ::fork();
  if (child == 0) become(program, arguments, options, out[1], err[1]);
  ::close(out[1]);
  ::close(err[1]);
  std::array<pollfd, 2> fds{{{out[0], POLLIN, 0}, {err[0], POLLIN, 0}}};
  const auto deadline = Clock::now() + std::chrono::seconds(options.limit_s);
  bool interrupted = false, killed = false;
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    ::poll(fds.data(), fds.size(), 200);
    for (auto& fd : fds) {
      if (fd.fd < 0 || fd.revents == 0) continue;
      if (!take(fd.fd, &fd == &fds[0] ? ran.out : ran.err)) fd.fd = -1;
    }
    if (!interrupted && !options.interrupt_when.empty() &&
        ran.err.find(options.interrupt_when) != std::string::npos) {
      interrupted = true;
      ::kill(child, SIGINT);
    }
    if (!killed && Clock::now() > deadline) {
      killed = true;
      ::kill(child, SIGKILL);
    }
  }
  ::close(out[0]);
  ::close(err[0]);
  int state = 0;
  while (::waitpid(child, &state, 0) < 0 && errno == EINTR) {
  }
  ran.code = WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
  return ran;
}

Ran run_kvstream(const std::vector<std::string>& arguments, const RunOptions& options) {
  return run_program(KVSTREAM_PROGRAM, arguments, options);
}

std::size_t count_lines(const std::string& text) {
  return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace kvstream::test
