// A folder that is gone at the end, however the run ends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "launch/on_stop.hpp"

namespace kvstream {

/// One rank of a node removes the folder.
enum class FolderRole : std::uint8_t { kGuest, kRemover };

/// Owned by the job. The remover unlinks the folder as soon as a signal has come, while it is still
/// in use: a launcher kills what does not end within a second.
class TemporaryFolder {
 public:
  TemporaryFolder(std::string path, FolderRole role);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  void remove() const;

  std::string path_;
  FolderRole role_;
  std::optional<OnStop> on_stop_;
};

}  // namespace kvstream
