#include "launch/signals.hpp"

#include <csignal>

namespace kvstream {
namespace {

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void on_signal(int signal) {
  stop.store(true);
  // The user who asks again does not want to wait for an orderly end.
  std::signal(signal, SIG_DFL);
}

}  // namespace

const std::atomic<bool>& stop_flag() { return stop; }

void catch_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGUSR1, on_signal);
}

}  // namespace kvstream
