#include "engine/abandoned.hpp"

#include <mutex>

namespace kvstream {
namespace {

struct Abandoned {
  std::mutex mutex;
  std::vector<std::thread> threads;
  std::vector<std::shared_ptr<void>> kept;
};

/// Never destroyed: a std::thread that is joinable must not be.
Abandoned& abandoned() {
  static auto* instance = new Abandoned;
  return *instance;
}

}  // namespace

void abandon(std::vector<std::thread> threads) {
  auto& all = abandoned();
  const std::lock_guard lock(all.mutex);
  for (auto& thread : threads) all.threads.push_back(std::move(thread));
}

void abandon(std::shared_ptr<void> kept) {
  auto& all = abandoned();
  const std::lock_guard lock(all.mutex);
  all.kept.push_back(std::move(kept));
}

}  // namespace kvstream
