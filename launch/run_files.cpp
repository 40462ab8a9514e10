#include "launch/run_files.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace kvstream {
namespace {

Status cannot_write(const std::string& path) {
  return {Code::kIoError,
          fmt::format("cannot write {} ({}); name another file", path, std::strerror(errno))};
}

}  // namespace

Status check_writable(const std::string& path) {
  if (path.empty() || path == "-") return Status::ok();
  const bool there = std::filesystem::exists(path);
  errno = 0;
  std::ofstream file(path, std::ios::app);
  if (!file) return cannot_write(path);
  file.close();
  if (!there) std::filesystem::remove(path);
  return Status::ok();
}

Status write_json(const std::string& path, const nlohmann::json& json) {
  const std::string text =
      json.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return std::fflush(stdout) == 0 ? Status::ok() : cannot_write("stdout");
  }
  const std::string aside = path + ".part";
  errno = 0;
  std::ofstream file(aside, std::ios::trunc);
  file << text;
  file.close();
  if (!file || std::rename(aside.c_str(), path.c_str()) != 0) return cannot_write(path);
  return Status::ok();
}

}  // namespace kvstream
