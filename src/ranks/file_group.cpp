#include "ranks/file_group.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "core/logging.hpp"
#include "core/units.hpp"
#include "ranks/job_token.hpp"
#include "ranks/solo_group.hpp"

namespace kvstream {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kFirstSleep = kMillisecond;
constexpr Nanos kSleepMax = 20 * kMillisecond;
constexpr std::size_t kWordBytesMax = std::size_t{64} << 20U;
constexpr std::uint32_t kRanksMax = 1U << 20U;

Nanos now() { return SteadyClock::instance().now(); }

// Names of the directory's files. Listing it is what makes NFS ask its server again; opening a name
// that was not there a moment ago would be answered from the cache.
std::set<std::string> list(const std::string& directory) {
  std::set<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(directory, error), end; !error && it != end; it.increment(error)) {
    names.insert(it->path().filename().string());
  }
  return names;
}

// A word's file is its length, a newline, and the bytes: a file that a network shows in part is not
// there yet.
std::optional<std::string> read_word(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::size_t size = 0;
  if (!(file >> size) || size > kWordBytesMax || file.get() != '\n') return {};
  std::string bytes(size, '\0');
  file.read(bytes.data(), static_cast<std::streamsize>(size));
  if (static_cast<std::size_t>(file.gcount()) != size) return {};
  return bytes;
}

// Calls `look` until it is true or the deadline has passed; says which.
bool poll_until(Nanos deadline, const std::function<bool()>& look) {
  for (Nanos sleep = kFirstSleep;; sleep = std::min(2 * sleep, kSleepMax)) {
    if (look()) return true;
    const Nanos left = deadline - now();
    if (left <= 0) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(sleep, left)));
  }
}

std::string hello_name(std::uint32_t rank) { return fmt::format("hello.{}", rank); }
constexpr const char* kJobName = "job";

void remove_file(const std::string& path) {
  // What cannot be removed stays; it does no harm (see the class comment).
  std::error_code ignored;
  fs::remove(path, ignored);
}

}  // namespace

std::string FileGroup::word_name(std::uint64_t round, std::uint32_t rank) const {
  return fmt::format("{}.{}.{}", job_, round, rank);
}
std::string FileGroup::left_name(std::uint32_t rank) const {
  return fmt::format("{}.left.{}", job_, rank);
}

Status FileGroup::publish(const std::string& name, const std::string& bytes) const {
  if (bytes.size() > kWordBytesMax) {
    return {Code::kInvalidArgument, fmt::format("a word of {} B is too long for a group of files "
                                                "(at most {})",
                                                bytes.size(), format_size(kWordBytesMax))};
  }
  const std::string path = options_.directory + "/" + name;
  const std::string aside = fmt::format("{}/.{}.{}.tmp", options_.directory, name, options_.rank);
  std::ofstream file(aside, std::ios::binary | std::ios::trunc);
  file << bytes.size() << '\n' << bytes;
  file.close();
  if (!file || std::rename(aside.c_str(), path.c_str()) != 0) {
    return {Code::kIoError,
            fmt::format("failed to write {} ({}); the directory must be writable for all ranks",
                        path, std::strerror(errno))};
  }
  return Status::ok();
}

// Rank 0: writes the token beside the words that the ranks show now, again whenever one changes (an
// earlier job's rank may have been first), until every rank has taken the token.
Status FileGroup::lead_agreement(Nanos deadline) {
  job_ = make_job_token();
  std::string written;
  Status status;
  std::vector<std::string> shown(options_.size);
  std::vector<std::uint32_t> missing;
  poll_until(deadline, [&] {
    const std::set<std::string> names = list(options_.directory);
    missing.clear();
    for (std::uint32_t rank = 1; rank < options_.size; ++rank) {
      if (names.contains(word_name(0, rank))) continue;
      missing.push_back(rank);
      if (!names.contains(hello_name(rank))) continue;
      shown[rank] = read_word(options_.directory + "/" + hello_name(rank)).value_or("");
    }
    std::string text = job_;
    for (std::uint32_t rank = 1; rank < options_.size; ++rank) {
      text += fmt::format("\n{} {}", rank, shown[rank]);
    }
    if (text != written) {
      status = publish(kJobName, text);
      written = text;
    }
    return !status.is_ok() || missing.empty();
  });
  if (!status.is_ok() || missing.empty()) return status;
  return {Code::kTimedOut,
          fmt::format("ranks {} of {} did not come to {}; were they started with "
                      "the same directory?",
                      fmt::join(missing, ", "), options_.size, options_.directory)};
}

Status FileGroup::follow_agreement(const std::string& nonce, Nanos deadline) {
  const std::string mine = fmt::format("{} {}", options_.rank, nonce);
  const bool agreed = poll_until(deadline, [&] {
    if (!list(options_.directory).contains(kJobName)) return false;
    std::istringstream text(read_word(options_.directory + "/" + kJobName).value_or(""));
    std::string token, line;
    std::getline(text, token);
    while (std::getline(text, line)) {
      if (line == mine) return job_ = token, true;
    }
    return false;
  });
  if (agreed) return Status::ok();
  return {Code::kTimedOut,
          fmt::format("rank 0 of {} did not answer in {}; was it started with the same directory?",
                      options_.size, options_.directory)};
}

Status FileGroup::agree_on_job(Nanos deadline) {
  if (options_.rank == 0) return lead_agreement(deadline);
  const std::string nonce = make_job_token();
  if (Status status = publish(hello_name(options_.rank), nonce); !status.is_ok()) return status;
  if (Status status = follow_agreement(nonce, deadline); !status.is_ok()) return status;
  // Doubles as this rank's word of round 0, by which rank 0 sees that the token was taken.
  return publish(word_name(0, options_.rank), options_.node);
}

// Round 0: the nodes' names.
Status FileGroup::find_neighbours(Nanos timeout) {
  Result<Gathered> nodes = all_gather(options_.node, timeout);
  if (!nodes) return nodes.error();
  if (!nodes->missing.empty()) {
    return {Code::kTimedOut,
            fmt::format("ranks {} of {} did not come to {}", fmt::join(nodes->missing, ", "),
                        options_.size, options_.directory)};
  }
  local_size_ = 0;
  for (std::uint32_t rank = 0; rank < options_.size; ++rank) {
    if (nodes->bytes[rank] != options_.node) continue;
    local_rank_ += rank < options_.rank ? 1 : 0;
    ++local_size_;
  }
  return Status::ok();
}

Result<std::unique_ptr<FileGroup>> FileGroup::open(Options options) {
  if (options.size == 0 || options.size > kRanksMax || options.rank >= options.size) {
    return failure(Code::kInvalidArgument,
                   fmt::format("rank {} of {} does not exist", options.rank, options.size));
  }
  std::error_code error;
  fs::create_directories(options.directory, error);
  if (!fs::is_directory(options.directory, error)) {
    return failure(Code::kIoError,
                   fmt::format("failed to make the directory {} ({}); name one that all ranks see "
                               "and may write",
                               options.directory, error ? error.message() : "not a directory"));
  }
  options.node = node_name(options.node);
  std::unique_ptr<FileGroup> group(new FileGroup(std::move(options)));
  const Nanos deadline = now() + group->options_.timeout;
  if (Status status = group->agree_on_job(deadline); !status.is_ok()) {
    return failure(std::move(status));
  }
  if (Status status = group->find_neighbours(std::max<Nanos>(deadline - now(), kMillisecond));
      !status.is_ok()) {
    return failure(std::move(status));
  }
  return group;
}

FileGroup::~FileGroup() { leave(); }

void FileGroup::forget_before(std::uint64_t round) {
  std::erase_if(published_, [&](std::uint64_t old) {
    if (old >= round) return false;
    remove_file(options_.directory + "/" + word_name(old, options_.rank));
    return true;
  });
}

Result<Gathered> FileGroup::all_gather(const std::string& mine, Nanos timeout) {
  const std::uint64_t round = round_++;
  if (Status status = publish(word_name(round, options_.rank), mine); !status.is_ok()) {
    return failure(std::move(status));
  }
  published_.push_back(round);
  Gathered gathered;
  gathered.bytes.resize(options_.size);
  gathered.bytes[options_.rank] = mine;
  std::vector<std::uint32_t> waiting;
  for (std::uint32_t rank = 0; rank < options_.size; ++rank) {
    if (rank != options_.rank) waiting.push_back(rank);
  }
  poll_until(now() + timeout, [&] {
    const std::set<std::string> names = list(options_.directory);
    std::erase_if(waiting, [&](std::uint32_t rank) {
      const std::string name = word_name(round, rank);
      if (names.contains(name)) {
        std::optional<std::string> word = read_word(options_.directory + "/" + name);
        if (word) gathered.bytes[rank] = std::move(*word);
        return word.has_value();
      }
      // Left before this round: it will not come any more.
      if (!names.contains(left_name(rank))) return false;
      gathered.missing.push_back(rank);
      return true;
    });
    return waiting.empty();
  });
  gathered.missing.insert(gathered.missing.end(), waiting.begin(), waiting.end());
  std::sort(gathered.missing.begin(), gathered.missing.end());
  // All have begun this round, so all have read every earlier one.
  if (gathered.missing.empty()) forget_before(round);
  return gathered;
}

Result<std::vector<std::uint32_t>> FileGroup::barrier(Nanos timeout) {
  Result<Gathered> gathered = all_gather("", timeout);
  if (!gathered) return failure(gathered.error());
  return std::move(gathered->missing);
}

Result<std::string> FileGroup::broadcast(const std::string& from_rank0, Nanos timeout) {
  const std::uint64_t round = round_++;
  const std::string name = word_name(round, 0);
  if (options_.rank == 0) {
    if (Status status = publish(name, from_rank0); !status.is_ok()) {
      return failure(std::move(status));
    }
    published_.push_back(round);
    return from_rank0;
  }
  std::optional<std::string> word;
  poll_until(now() + timeout, [&] {
    const std::set<std::string> names = list(options_.directory);
    if (names.contains(name)) word = read_word(options_.directory + "/" + name);
    return word.has_value() || (!names.contains(name) && names.contains(left_name(0)));
  });
  if (word) return *word;
  return failure(Code::kTimedOut, fmt::format("rank 0 did not come to a broadcast in {}; is it "
                                              "alive?",
                                              options_.directory));
}

void FileGroup::leave() {
  if (left_ || job_.empty()) return;
  left_ = true;
  if (Status status = publish(left_name(options_.rank), ""); !status.is_ok()) {
    logger("ranks").warn("{}", status.message());
    return;
  }
  remove_file(options_.directory + "/" + hello_name(options_.rank));
  if (options_.rank != 0) return;
  std::set<std::string> names;
  const bool all_left = poll_until(now() + options_.leave_timeout, [&] {
    names = list(options_.directory);
    for (std::uint32_t rank = 0; rank < options_.size; ++rank) {
      if (!names.contains(left_name(rank))) return false;
    }
    return true;
  });
  // Somebody may still read what a rank that has left had to say.
  if (!all_left) return;
  for (const std::string& name : names) {
    if (name.starts_with(job_ + ".")) remove_file(options_.directory + "/" + name);
  }
  remove_file(options_.directory + "/" + kJobName);
}

}  // namespace kvstream
