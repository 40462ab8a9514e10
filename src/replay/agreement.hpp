// One rank's error ends the work of all, at the same place.
#pragma once

#include <cstdint>

#include "kvstream/status.hpp"
#include "ranks/group.hpp"

namespace kvstream {

/// Ok when every rank is; else the first rank's error, on all ranks (its number is put in front
/// when there are several ranks). A rank that does not come within `timeout` is an error too.
Status agree(Group& group, const Status& mine, Nanos timeout = 120 * kSecond);

/// The sum over all ranks.
Result<std::uint64_t> count_all(Group& group, std::uint64_t mine, Nanos timeout = 120 * kSecond);

}  // namespace kvstream
