#include "replay/text_lines.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace kvstream {
namespace {

constexpr std::size_t kBufferBytes = 128U << 10U;
constexpr std::array<char, 4> kZstdMagic = {'\x28', '\xb5', '\x2f', '\xfd'};

}  // namespace

Result<TextLines> TextLines::open(const std::string& path) {
  TextLines lines;
  lines.path_ = path;
  lines.file_.open(path, std::ios::binary);
  if (!lines.file_) {
    return failure(Code::kNotFound,
                   "cannot read the trace " + path + " (" + std::strerror(errno) +
                       "); give the path of a trace, or a generator's name: documents, loogle, "
                       "agent");
  }
  lines.text_.resize(kBufferBytes);
  std::array<char, 4> begin{};
  lines.file_.read(begin.data(), begin.size());
  if (lines.file_.bad()) {
    return failure(Code::kIoError, "failed to read the trace " + path + " (is it a folder?)");
  }
  lines.file_.clear();
  lines.file_.seekg(0);
  if (begin == kZstdMagic) {
    lines.packed_.resize(kBufferBytes);
    lines.zstd_.reset(ZSTD_createDStream());
    if (!lines.zstd_) return failure(Code::kUnavailable, "no memory to unpack " + path);
  }
  return lines;
}

Status TextLines::bad_line(const std::string& what) const {
  return {Code::kInvalidArgument, path_ + " line " + std::to_string(number_) + ": " + what};
}

Status TextLines::unpack() {
  while (text_end_ == 0) {
    if (packed_at_ == packed_end_) {
      file_.read(packed_.data(), static_cast<std::streamsize>(packed_.size()));
      packed_at_ = 0;
      packed_end_ = static_cast<std::size_t>(file_.gcount());
      if (file_.bad()) return {Code::kIoError, "failed to read the trace " + path_};
      if (packed_end_ == 0 && !frame_open_) return Status::ok();
    }
    ZSTD_inBuffer in{packed_.data(), packed_end_, packed_at_};
    ZSTD_outBuffer out{text_.data(), text_.size(), 0};
    const std::size_t left = ZSTD_decompressStream(zstd_.get(), &out, &in);
    const bool cut_off = packed_end_ == 0 && out.pos == 0 && left != 0;
    if (ZSTD_isError(left) != 0 || cut_off) {
      return {Code::kInvalidArgument,
              path_ + " is no whole zstd file behind line " + std::to_string(number_) + " (" +
                  (cut_off ? "it is cut off" : ZSTD_getErrorName(left)) + "); fetch it again"};
    }
    frame_open_ = left != 0;
    packed_at_ = in.pos;
    text_end_ = out.pos;
  }
  return Status::ok();
}

Status TextLines::refill() {
  text_at_ = text_end_ = 0;
  if (zstd_) return unpack();
  file_.read(text_.data(), static_cast<std::streamsize>(text_.size()));
  text_end_ = static_cast<std::size_t>(file_.gcount());
  return file_.bad() ? Status{Code::kIoError, "failed to read the trace " + path_} : Status::ok();
}

Result<bool> TextLines::next(std::string& line) {
  line.clear();
  bool any = false;
  for (;;) {
    if (text_at_ == text_end_) {
      if (Status status = refill(); !status.is_ok()) return failure(status);
    }
    if (text_end_ == 0) {
      if (any) ++number_;
      return line.find_first_not_of(" \t\r") != std::string::npos;
    }
    any = true;
    const char* from = text_.data() + text_at_;
    const char* end = text_.data() + text_end_;
    const char* found = std::find(from, end, '\n');
    line.append(from, found);
    text_at_ = static_cast<std::size_t>(found - text_.data()) + (found == end ? 0 : 1);
    if (line.size() > kLineBytesMax) {
      ++number_;
      return failure(bad_line("is longer than 256 MiB; is this a trace?"));
    }
    if (found == end) continue;
    ++number_;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t\r") != std::string::npos) return true;
    line.clear();
    any = false;
  }
}

}  // namespace kvstream
