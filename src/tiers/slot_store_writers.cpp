#include "tiers/slot_store_writers.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <random>

#include "core/logging.hpp"

namespace kvstream {
namespace {

/// Directories beyond this are not looked for: a bound, not a limit that anyone meets.
constexpr std::uint32_t kDirectoriesMax = 4096;
constexpr std::uint32_t kAdoptionsMax = 64;

std::int64_t changed_at(const struct stat& info) {
  return std::int64_t{info.st_mtim.tv_sec} * kSecond + info.st_mtim.tv_nsec;
}

std::string writer_of(const std::string& base) {
  const auto slash = base.rfind('/');
  const auto dash = base.rfind('-');
  return dash != std::string::npos && dash > slash ? base.substr(0, dash) : base.substr(0, slash);
}

/// The part of a file's name before its first '.'; empty when it is none of a segment's files.
std::string base_name_of(const std::string& name) {
  const auto dot = name.find('.');
  if (dot == std::string::npos || dot == 0) return {};
  const std::string extension = name.substr(dot);
  const bool known = extension == ".seg" || extension == ".h5" || extension == ".log" ||
                     extension == ".log.new" || extension.starts_with(".adopt.");
  return known ? name.substr(0, dot) : std::string{};
}

void count_file(std::map<std::string, SegmentFiles>& found, const std::string& directory,
                const std::string& name) {
  const std::string stem = base_name_of(name);
  struct stat info {};
  if (stem.empty() || ::stat((directory + "/" + name).c_str(), &info) != 0) return;
  const std::string base = directory + "/" + stem;
  auto& files = found[base];
  files.base = base;
  const auto size = static_cast<std::uint64_t>(info.st_size);
  files.bytes += size;
  if (name.ends_with(".log")) {
    files.has_log = true;
    files.log_bytes = size;
    files.changed_at_ns = changed_at(info);
  } else if (name.ends_with(".seg") || name.ends_with(".h5")) {
    files.has_data = true;
    if (!files.has_log) files.changed_at_ns = changed_at(info);
  }
}

std::string one_word(const std::string& text) {
  std::string word = text.empty() ? "job" : text;
  for (char& c : word) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_') c = '_';
  }
  return word;
}

std::string beat_path(const std::string& writer) { return writer + ".beat"; }

}  // namespace

Result<RootScan> scan_root(const std::string& root) {
  RootScan scan;
  std::map<std::string, SegmentFiles> found;
  const auto places = list_directory(root);
  if (!places) return failure(places.error());
  for (const auto& place : *places) {
    if (!place.is_directory) continue;
    const std::string directory = root + "/" + place.name;
    const auto files = list_directory(directory);
    if (!files) return failure(files.error());
    for (const auto& file : *files) {
      if (file.is_directory) continue;
      count_file(found, directory, file.name);
      // Writers that have no segment yet are writers all the same.
      if (file.name == "LOCK") scan.bytes_of_writer[directory];
      if (file.name.ends_with(".beat")) {
        scan.bytes_of_writer[directory + "/" + file.name.substr(0, file.name.size() - 5)];
      }
    }
  }
  std::map<std::string, std::uint64_t> spare;
  for (auto& [base, files] : found) {
    files.writer = writer_of(base);
    scan.bytes_of_writer[files.writer] += files.bytes;
    spare[files.writer] = std::max(spare[files.writer], files.log_bytes);
    scan.segments.push_back(std::move(files));
  }
  for (auto& [writer, bytes] : scan.bytes_of_writer) {
    bytes += spare[writer];
    scan.total_bytes += bytes;
  }
  return scan;
}

void remove_segment_files(const std::string& base) {
  // The log goes first: what it does not name, nobody reads.
  ::unlink((base + ".log").c_str());
  ::unlink((base + ".log.new").c_str());
  for (const FormatId id : {FormatId::kPlain, FormatId::kHdf5}) {
    const std::string data = base + segment_extension(id);
    if (::truncate(data.c_str(), 0) == 0) ::unlink(data.c_str());
  }
  for (std::uint32_t epoch = 1; epoch <= kAdoptionsMax; ++epoch) {
    if (::unlink(fmt::format("{}.adopt.{}", base, epoch).c_str()) != 0) break;
  }
}

Result<StoreWriters> StoreWriters::open(const SlotStoreOptions& options) {
  StoreWriters writers(options);
  const Status status = options.layout == StoreLayout::kNodeLocal ? writers.take_directories()
                                                                  : writers.make_shared_name();
  if (!status.is_ok()) return failure(status);
  return writers;
}

StoreWriters::~StoreWriters() {
  if (beat_.is_open() && !own_.empty()) ::unlink(beat_path(own_.front()).c_str());
}

Status StoreWriters::take_directories() {
  // Ranks of a job look at different directories (index modulo their number), so that all of them
  // may start at once and each finds its own again.
  const std::uint32_t step = std::max<std::uint32_t>(options_.writers, 1);
  std::vector<bool> present(kDirectoriesMax, false);
  const auto places = list_directory(options_.root);
  if (!places) return places.error();
  for (const auto& place : *places) {
    const auto index = directory_index(options_.root + "/" + place.name);
    if (place.is_directory && index && *index < kDirectoriesMax) present[*index] = true;
  }
  for (std::uint32_t i = options_.writer_index; i < kDirectoriesMax; i += step) {
    if (!present[i] && !own_.empty()) continue;
    const std::string directory = fmt::format("{}/r{}", options_.root, i);
    if (auto status = make_directories(directory); !status.is_ok()) return status;
    auto lock = FileLock::try_take(directory + "/LOCK");
    if (lock) {
      own_.push_back(directory);
      locks_.push_back(std::move(*lock));
    } else if (lock.error().code() != Code::kOverloaded) {
      return {lock.error().code(), lock.error().message() +
                                       "; an nvme tier needs a file system "
                                       "with flock"};
    }
  }
  if (own_.empty())
    return {Code::kUnavailable, "all writer directories of " + options_.root + " are locked"};
  return Status::ok();
}

Status StoreWriters::make_shared_name() {
  place_ = fmt::format("{}/{:016x}", options_.root, options_.namespace_fingerprint);
  if (auto status = make_directories(place_); !status.is_ok()) return status;
  std::random_device random;
  for (int attempt = 0; attempt < 16; ++attempt) {
    const std::string name = fmt::format("{}/{}-{}-{:08x}", place_, one_word(options_.job),
                                         options_.writer_index, random());
    beat_ = UniqueFd(::open(beat_path(name).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (beat_.is_open()) {
      own_.push_back(name);
      beat_due_ = options_.clock->now() + options_.heartbeat_ns;
      return Status::ok();
    }
    if (errno != EEXIST) return file_error("make", beat_path(name), errno);
  }
  return {Code::kUnavailable, "no free writer name in " + place_};
}

std::optional<std::uint32_t> StoreWriters::directory_index(const std::string& writer) const {
  const std::string name = writer.substr(writer.rfind('/') + 1);
  std::uint32_t index = 0;
  if (name.size() < 2 || name[0] != 'r') return std::nullopt;
  const auto [end, error] = std::from_chars(name.data() + 1, name.data() + name.size(), index);
  if (error != std::errc{} || end != name.data() + name.size()) return std::nullopt;
  return index;
}

bool StoreWriters::is_own(const std::string& writer) const {
  return std::find(own_.begin(), own_.end(), writer) != own_.end();
}

std::optional<std::int64_t> StoreWriters::beat_age_ns(const std::string& writer) const {
  struct stat theirs {};
  if (::stat(beat_path(writer).c_str(), &theirs) != 0) return std::nullopt;
  // Both times are the server's: ours was touched at most a heartbeat ago.
  struct stat ours {};
  if (::futimens(beat_.get(), nullptr) != 0 || ::fstat(beat_.get(), &ours) != 0) return 0;
  return changed_at(ours) - changed_at(theirs);
}

bool StoreWriters::is_alive(const std::string& writer) const {
  if (is_own(writer)) return true;
  if (options_.layout == StoreLayout::kShared) {
    const auto age = beat_age_ns(writer);
    return age && *age < options_.dead_after_ns;
  }
  if (!directory_index(writer)) return false;
  const auto lock = FileLock::try_take(writer + "/LOCK");
  return !lock;
}

std::uint32_t StoreWriters::count_alive(const RootScan& scan) const {
  std::uint32_t alive = 1;
  for (const auto& [writer, bytes] : scan.bytes_of_writer) {
    if (!is_own(writer) && is_alive(writer)) ++alive;
  }
  return alive;
}

void StoreWriters::forget_dead(const RootScan& scan) const {
  if (options_.layout != StoreLayout::kShared) return;
  for (const auto& [writer, bytes] : scan.bytes_of_writer) {
    if (bytes == 0 && !is_alive(writer)) ::unlink(beat_path(writer).c_str());
  }
}

bool StoreWriters::may_take(const std::string& writer) const {
  if (options_.layout == StoreLayout::kShared) return true;
  const auto index = directory_index(writer);
  return !index || *index >= options_.writers;
}

bool StoreWriters::remove_of_dead(const SegmentFiles& files) const {
  if (is_own(files.writer)) return false;
  if (options_.layout == StoreLayout::kNodeLocal) {
    FileLock lock;
    if (directory_index(files.writer)) {
      auto taken = FileLock::try_take(files.writer + "/LOCK");
      if (!taken) return false;
      lock = std::move(*taken);
    }
    remove_segment_files(files.base);
    return true;
  }
  if (is_alive(files.writer)) return false;
  for (std::uint32_t epoch = 1; epoch <= kAdoptionsMax; ++epoch) {
    const std::string marker = fmt::format("{}.adopt.{}", files.base, epoch);
    const UniqueFd fd(::open(marker.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (fd.is_open()) {
      remove_segment_files(files.base);
      return true;
    }
    struct stat theirs {};
    struct stat ours {};
    if (errno != EEXIST || ::stat(marker.c_str(), &theirs) != 0) return false;
    // The marker of one that fell silent is superseded by the next epoch.
    if (::fstat(beat_.get(), &ours) != 0 ||
        changed_at(ours) - changed_at(theirs) < options_.dead_after_ns) {
      return false;
    }
  }
  return false;
}

std::string StoreWriters::segment_base(std::uint32_t number) const {
  return options_.layout == StoreLayout::kNodeLocal ? fmt::format("{}/s{}", own_.front(), number)
                                                    : fmt::format("{}-{}", own_.front(), number);
}

Result<std::vector<std::string>> StoreWriters::logs_of_others() const {
  std::vector<std::string> directories;
  if (options_.layout == StoreLayout::kShared) {
    directories.push_back(place_);
  } else {
    const auto places = list_directory(options_.root);
    if (!places) return failure(places.error());
    for (const auto& place : *places) {
      const std::string directory = options_.root + "/" + place.name;
      if (place.is_directory && directory_index(directory) && !is_own(directory)) {
        directories.push_back(directory);
      }
    }
  }
  std::vector<std::string> logs;
  for (const auto& directory : directories) {
    const auto files = list_directory(directory);
    if (!files) return failure(files.error());
    for (const auto& file : *files) {
      if (!file.name.ends_with(".log")) continue;
      const std::string path = directory + "/" + file.name;
      if (!is_own(writer_of(path.substr(0, path.size() - 4)))) logs.push_back(path);
    }
  }
  return logs;
}

Status StoreWriters::heartbeat(Nanos now) {
  if (!beat_.is_open() || now < beat_due_) return Status::ok();
  beat_due_ = now + options_.heartbeat_ns;
  if (::futimens(beat_.get(), nullptr) != 0) {
    return file_error("touch", beat_path(own_.front()), errno);
  }
  return Status::ok();
}

bool StoreWriters::was_taken(const std::string& base) const {
  struct stat info {};
  return ::stat((base + ".adopt.1").c_str(), &info) == 0 ||
         (::stat((base + ".log").c_str(), &info) != 0 && errno == ENOENT);
}

}  // namespace kvstream
