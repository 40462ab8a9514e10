#include "launch/temporary_folder.hpp"

#include <filesystem>
#include <utility>

namespace kvstream {

TemporaryFolder::TemporaryFolder(std::string path, FolderRole role)
    : path_(std::move(path)), role_(role) {
  if (role_ == FolderRole::kRemover) on_stop_.emplace([this] { remove(); });
}

TemporaryFolder::~TemporaryFolder() {
  if (role_ != FolderRole::kRemover) return;
  on_stop_.reset();
  remove();
}

void TemporaryFolder::remove() const {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace kvstream
