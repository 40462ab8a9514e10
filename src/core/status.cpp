#include "kvstream/status.hpp"

namespace kvstream {

std::string_view to_string(Code code) noexcept {
  switch (code) {
    case Code::kOk:
      return "ok";
    case Code::kInvalidArgument:
      return "invalid_argument";
    case Code::kNotFound:
      return "not_found";
    case Code::kIoError:
      return "io_error";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kNoSpace:
      return "no_space";
    case Code::kOverloaded:
      return "overloaded";
    case Code::kTimedOut:
      return "timed_out";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kClosed:
      return "closed";
  }
  return "unknown";
}

std::string Status::to_string() const {
  std::string text(kvstream::to_string(code_));
  if (!message_.empty()) {
    text += ": ";
    text += message_;
  }
  return text;
}

}  // namespace kvstream
