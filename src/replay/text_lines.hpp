// Lines of a text file, plain or zstd.
#pragma once

#include <zstd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "kvstream/status.hpp"

namespace kvstream {

/// Reads line by line; a file that begins as zstd does is unpacked on the way, whatever its name.
/// One thread. Holds one line and two buffers of 128 KiB; a line of more than kLineBytesMax is an
/// error.
class TextLines {
 public:
  static constexpr std::size_t kLineBytesMax = std::size_t{256} << 20U;

  /// kNotFound when there is no such file.
  static Result<TextLines> open(const std::string& path);

  /// The next line that is not blank, without its end ("\n" or "\r\n"); false at the file's end.
  Result<bool> next(std::string& line);
  /// Of the line that next() gave last, from 1.
  std::uint64_t number() const { return number_; }
  const std::string& path() const { return path_; }
  /// "PATH line 7: what", for errors about that line.
  Status bad_line(const std::string& what) const;

 private:
  TextLines() = default;
  Status refill();
  Status unpack();

  struct FreeStream {
    void operator()(ZSTD_DStream* stream) const { ZSTD_freeDStream(stream); }
  };

  std::string path_;
  std::ifstream file_;
  std::unique_ptr<ZSTD_DStream, FreeStream> zstd_;  ///< none: the file is plain
  std::vector<char> packed_, text_;
  std::size_t packed_at_ = 0, packed_end_ = 0, text_at_ = 0, text_end_ = 0;
  bool frame_open_ = false;  ///< the packed text may not end here
  std::uint64_t number_ = 0;
};

}  // namespace kvstream
