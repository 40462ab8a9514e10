#include "launch/temporary_folder.hpp"

#include <chrono>
#include <filesystem>
#include <utility>

#include "launch/signals.hpp"

namespace kvstream {
namespace {

constexpr std::chrono::milliseconds kLookEvery{100};

}  // namespace

TemporaryFolder::TemporaryFolder(std::string path, FolderRole role)
    : path_(std::move(path)), role_(role) {
  if (role_ == FolderRole::kRemover) watcher_ = std::thread([this] { watch(); });
}

TemporaryFolder::~TemporaryFolder() {
  if (role_ != FolderRole::kRemover) return;
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_changed_.notify_all();
  watcher_.join();
  remove();
}

void TemporaryFolder::watch() {
  std::unique_lock lock(mutex_);
  while (!ended_ && !stop_flag().load()) ended_changed_.wait_for(lock, kLookEvery);
  if (!ended_) remove();
}

void TemporaryFolder::remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace kvstream
