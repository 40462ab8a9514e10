// How the program ends, and its one line when something is wrong.
#pragma once

#include <cstdint>

#include "kvstream/status.hpp"

namespace kvstream {

inline constexpr int kExitGood = 0;
inline constexpr int kExitWrong = 1;  ///< a wrong byte, an open account, a run that failed
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitInterrupted = 130;

/// "kvstream: <message>" on stderr, by the first rank alone.
void print_error(const Status& status, std::uint32_t rank);

}  // namespace kvstream
