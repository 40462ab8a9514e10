// A folder that is gone at the end, however the run ends.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace kvstream {

/// One rank of a node removes the folder.
enum class FolderRole : std::uint8_t { kGuest, kRemover };

/// Owned by the job. The remover's thread (joined by the destructor) unlinks the folder as soon as
/// a signal has come, while it is still in use: a launcher kills what does not end within a second.
class TemporaryFolder {
 public:
  TemporaryFolder(std::string path, FolderRole role);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  void watch();
  void remove() const;

  std::string path_;
  FolderRole role_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;
  std::thread watcher_;
};

}  // namespace kvstream
