// Status and Result<T>: how every call of KVStream that can fail says so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace kvstream {

/// What went wrong, as far as a caller can act on it. `Status::message()` has the detail.
enum class Code : std::uint8_t {
  kOk,
  kInvalidArgument,  ///< the caller's input; nothing was done
  kNotFound,         ///< no such key, file, lease
  kIoError,          ///< a device, file system or network refused
  kCorrupt,          ///< bytes did not match their checksum or format
  kNoSpace,          ///< cap or file system full
  kOverloaded,       ///< a bounded queue or pool is full: try later, or do without
  kTimedOut,         ///< a deadline passed
  kUnavailable,      ///< a feature, owner or lock is not to be had here
  kClosed,           ///< the engine is closed, or was abandoned
};

/// The code's name as it appears in messages and JSON, e.g. "no_space".
std::string_view to_string(Code code) noexcept;

/// A code and one line that says what, where and how to cure it. Cheap when ok.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status ok() { return {}; }
  bool is_ok() const noexcept { return code_ == Code::kOk; }
  Code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  /// "io_error: failed to ..." or "ok".
  std::string to_string() const;

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

template <class T>
using Result = tl::expected<T, Status>;

/// Shorthand for `return failure(Code::kIoError, "...")` out of a function that returns Result<T>.
inline tl::unexpected<Status> failure(Code code, std::string message) {
  return tl::unexpected<Status>(Status(code, std::move(message)));
}
inline tl::unexpected<Status> failure(Status status) {
  return tl::unexpected<Status>(std::move(status));
}

}  // namespace kvstream
