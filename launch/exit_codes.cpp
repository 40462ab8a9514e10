#include "launch/exit_codes.hpp"

#include <fmt/format.h>

#include <cstdio>

namespace kvstream {

void print_error(const Status& status, std::uint32_t rank) {
  if (rank == 0) fmt::print(stderr, "kvstream: {}\n", status.message());
}

}  // namespace kvstream
