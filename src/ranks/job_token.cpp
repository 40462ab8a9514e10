#include "ranks/job_token.hpp"

#include <fmt/format.h>

#include <random>

namespace kvstream {

std::string make_job_token() {
  std::random_device entropy;
  std::string token;
  for (int word = 0; word < 4; ++word) token += fmt::format("{:08x}", entropy());
  return token;
}

}  // namespace kvstream
