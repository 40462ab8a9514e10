// A directory that all ranks of a test see.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "mpi_tiers/mpi_group.hpp"

namespace kvstream {

/// Made by rank 0 under TMPDIR and removed by it when the last rank has let go of it.
class SharedDirectory {
 public:
  SharedDirectory() {
    auto session = MpiSession::open();
    if (!session) return;
    session_ = *session;
    auto group = MpiGroup::open(session_, {});
    if (!group) return;
    group_ = std::move(*group);
    std::string made;
    if (group_->rank() == 0) {
      const char* tmp = std::getenv("TMPDIR");
      made = std::string(tmp == nullptr ? "/tmp" : tmp) + "/kvstream-mpi-XXXXXX";
      if (mkdtemp(made.data()) == nullptr) made.clear();
    }
    auto path = group_->broadcast(made, kWait);
    if (path) path_ = *path;
  }
  ~SharedDirectory() {
    if (!group_) return;
    meet();
    std::error_code ignored;
    if (group_->rank() == 0 && !path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;

  bool ok() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  const std::shared_ptr<MpiSession>& session() const { return session_; }
  MpiGroup& group() { return *group_; }
  std::uint32_t rank() const { return group_->rank(); }
  std::uint32_t ranks() const { return group_->size(); }
  /// All ranks come here, or the test fails.
  void meet() {
    auto missing = group_->barrier(kWait);
    EXPECT_TRUE(missing && missing->empty()) << "a rank did not come";
  }

 private:
  static constexpr Nanos kWait = 30 * kSecond;
  std::shared_ptr<MpiSession> session_;
  std::unique_ptr<MpiGroup> group_;
  std::string path_;
};

}  // namespace kvstream
