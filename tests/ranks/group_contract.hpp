// Runs the ranks of a group as threads of one test.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ranks/file_group.hpp"
#include "ranks/group.hpp"
#include "ranks/loopback_group.hpp"
#include "ranks/solo_group.hpp"

namespace kvstream::test {

/// A directory that one test's ranks share, removed at the end.
class SharedDirectory {
 public:
  SharedDirectory() : path_(std::filesystem::temp_directory_path() / "kvstream-ranks-XXXXXX") {
    if (::mkdtemp(path_.data()) == nullptr) ADD_FAILURE() << "failed to make " << path_;
  }
  ~SharedDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  SharedDirectory(const SharedDirectory&) = delete;
  SharedDirectory& operator=(const SharedDirectory&) = delete;
  const std::string& path() const { return path_; }
  std::size_t count_files() const {
    std::filesystem::directory_iterator files(path_);
    return static_cast<std::size_t>(std::distance(begin(files), end(files)));
  }

 private:
  std::string path_;
};

using RankProgram = std::function<void(Group&)>;

/// Runs `program` on each of `ends` in a thread of its own.
inline void run_ranks(std::vector<std::unique_ptr<Group>> ends, const RankProgram& program) {
  std::vector<std::thread> threads;
  for (std::unique_ptr<Group>& end : ends) {
    threads.emplace_back([&program, &end] {
      program(*end);
      end->leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

/// Opens `count` file groups at the same time; null where open() failed.
inline std::vector<std::unique_ptr<Group>> open_file_groups(
    const std::string& directory, std::uint32_t count, const std::vector<std::string>& nodes = {}) {
  std::vector<std::unique_ptr<Group>> ends(count);
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    threads.emplace_back([&, rank] {
      FileGroup::Options options;
      options.directory = directory;
      options.rank = rank;
      options.size = count;
      options.node = rank < nodes.size() ? nodes[rank] : "node0";
      options.timeout = 20 * kSecond;
      auto group = FileGroup::open(options);
      EXPECT_TRUE(group.has_value()) << group.error().to_string();
      if (group) ends[rank] = std::move(*group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ends;
}

}  // namespace kvstream::test
