// Ctrl-C and TERM become a flag; a second one ends the program at once.
#pragma once

#include <atomic>

namespace kvstream {

/// Set by the first SIGINT or SIGTERM. Looked at by loops; never reset.
const std::atomic<bool>& stop_flag();
void catch_signals();

}  // namespace kvstream
