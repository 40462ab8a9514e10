// The ranks of a job that find each other through a shared directory, without MPI.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ranks/group.hpp"

namespace kvstream {

/// Owned by the program; one thread. Each word is a file that is written aside and renamed; waiting
/// lists the directory (which also makes a network file system look again), with sleeps that back
/// off to 20 ms. A word is at most 64 MiB. A rank's files are removed once all have gathered
/// something later, and all of the job's by rank 0 when everyone has left.
///
/// What an earlier job left in the directory is harmless: every rank shows a random word first, and
/// takes for its job's token only one that rank 0 has written beside that very word.
class FileGroup final : public Group {
 public:
  struct Options {
    std::string directory;  ///< made when it is not there; seen by all ranks
    std::uint32_t rank = 0;
    std::uint32_t size = 1;
    std::string node = "auto";          ///< "auto" = the host name
    Nanos timeout = 60 * kSecond;       ///< for all ranks to come
    Nanos leave_timeout = 2 * kSecond;  ///< how long rank 0 waits to clear up
  };
  /// kTimedOut names the ranks that did not come.
  static Result<std::unique_ptr<FileGroup>> open(Options options);
  ~FileGroup() override;
  FileGroup(const FileGroup&) = delete;
  FileGroup& operator=(const FileGroup&) = delete;

  std::uint32_t rank() const override { return options_.rank; }
  std::uint32_t size() const override { return options_.size; }
  const std::string& node() const override { return options_.node; }
  std::uint32_t local_rank() const override { return local_rank_; }
  std::uint32_t local_size() const override { return local_size_; }
  Result<std::vector<std::uint32_t>> barrier(Nanos timeout) override;
  Result<Gathered> all_gather(const std::string& mine, Nanos timeout) override;
  Result<std::string> broadcast(const std::string& from_rank0, Nanos timeout) override;
  const std::string& job() const override { return job_; }
  void leave() override;

 private:
  explicit FileGroup(Options options) : options_(std::move(options)) {}
  Status agree_on_job(Nanos deadline);
  Status lead_agreement(Nanos deadline);
  Status follow_agreement(const std::string& nonce, Nanos deadline);
  Status find_neighbours(Nanos timeout);

  std::string word_name(std::uint64_t round, std::uint32_t rank) const;
  std::string left_name(std::uint32_t rank) const;
  Status publish(const std::string& name, const std::string& bytes) const;
  void forget_before(std::uint64_t round);

  Options options_;
  std::string job_;
  std::uint32_t local_rank_ = 0, local_size_ = 1;
  std::uint64_t round_ = 0;
  std::vector<std::uint64_t> published_;  ///< rounds whose file of ours is still there
  bool left_ = false;
};

}  // namespace kvstream
