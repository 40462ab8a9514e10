// Ctrl-C, TERM, and USR1 (which mpirun passes on) become a flag; a second one ends the program.
#pragma once

#include <atomic>

namespace kvstream {

/// Set by the first SIGINT, SIGTERM or SIGUSR1. Looked at by loops; never reset.
const std::atomic<bool>& stop_flag();
void catch_signals();

}  // namespace kvstream
