#include "replay/agreement.hpp"

#include <cstdlib>
#include <string>

namespace kvstream {

Status agree(Group& group, const Status& mine, Nanos timeout) {
  std::string word(1, static_cast<char>(mine.code()));
  auto gathered = group.all_gather(word + mine.message(), timeout);
  if (!gathered) return mine.is_ok() ? gathered.error() : mine;
  for (std::size_t rank = 0; rank < gathered->bytes.size(); ++rank) {
    const std::string& bytes = gathered->bytes[rank];
    if (bytes.empty() || bytes[0] == static_cast<char>(Code::kOk)) continue;
    std::string message = bytes.substr(1);
    if (group.size() > 1) message = "rank " + std::to_string(rank) + ": " + message;
    return {static_cast<Code>(bytes[0]), std::move(message)};
  }
  if (!gathered->missing.empty()) {
    return {Code::kTimedOut,
            "rank " + std::to_string(gathered->missing.front()) + " did not answer in time"};
  }
  return Status::ok();
}

Result<std::uint64_t> count_all(Group& group, std::uint64_t mine, Nanos timeout) {
  auto gathered = group.all_gather(std::to_string(mine), timeout);
  if (!gathered) return failure(gathered.error());
  std::uint64_t sum = 0;
  for (const auto& bytes : gathered->bytes) sum += std::strtoull(bytes.c_str(), nullptr, 10);
  return sum;
}

}  // namespace kvstream
