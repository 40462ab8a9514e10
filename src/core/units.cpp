#include "core/units.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

namespace kvstream {
namespace {

struct Unit {
  std::string_view name;  ///< lower case
  double factor;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 14> kSizeUnits = {{{"", 1},
                                              {"b", 1},
                                              {"kb", 1e3},
                                              {"mb", 1e6},
                                              {"gb", 1e9},
                                              {"tb", 1e12},
                                              {"k", kKi},
                                              {"kib", kKi},
                                              {"m", kKi* kKi},
                                              {"mib", kKi* kKi},
                                              {"g", kKi* kKi* kKi},
                                              {"gib", kKi* kKi* kKi},
                                              {"t", kKi* kKi* kKi* kKi},
                                              {"tib", kKi* kKi* kKi* kKi}}};
constexpr std::array<Unit, 7> kTimeUnits = {
    {{"", 1e9}, {"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}, {"min", 60e9}, {"h", 3600e9}}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

// Takes a number >= 0 off the front; a whole number stays exact up to 2^64.
struct Number {
  double value = 0;
  std::optional<std::uint64_t> whole;
};
std::optional<Number> take_number(std::string_view& text) {
  Number number;
  const char* end = text.data() + text.size();
  const auto [after, error] =
      std::from_chars(text.data(), end, number.value, std::chars_format::fixed);
  if (error != std::errc{} || !(number.value >= 0) || !std::isfinite(number.value)) return {};
  std::uint64_t whole = 0;
  const auto [whole_after, whole_error] = std::from_chars(text.data(), end, whole);
  if (whole_error == std::errc{} && whole_after == after) number.whole = whole;
  text.remove_prefix(static_cast<std::size_t>(after - text.data()));
  return number;
}

template <std::size_t N>
std::optional<double> factor_of(std::string_view text, const std::array<Unit, N>& units) {
  const std::string name = lower(trim(text));
  for (const Unit& unit : units) {
    if (unit.name == name) return unit.factor;
  }
  return {};
}

// The value in the smallest unit, when it fits into `T`.
template <class T, std::size_t N>
std::optional<T> parse_with_unit(std::string_view text, const std::array<Unit, N>& units) {
  text = trim(text);
  const std::optional<Number> number = take_number(text);
  if (!number) return {};
  const std::optional<double> factor = factor_of(text, units);
  if (!factor) return {};
  if (number->whole && *factor >= 1) {
    const auto whole_factor = static_cast<std::uint64_t>(*factor);
    if (*number->whole > static_cast<std::uint64_t>(std::numeric_limits<T>::max()) / whole_factor) {
      return {};
    }
    return static_cast<T>(*number->whole * whole_factor);
  }
  const double value = std::round(number->value * *factor);
  // 2^63 and 2^64 are exact as doubles, the maxima themselves are not: so strictly less.
  if (!(value < std::ldexp(1.0, std::numeric_limits<T>::digits))) return {};
  return static_cast<T>(value);
}

}  // namespace

Result<std::uint64_t> parse_size(std::string_view text) {
  if (const auto bytes = parse_with_unit<std::uint64_t>(text, kSizeUnits)) return *bytes;
  return failure(Code::kInvalidArgument,
                 fmt::format("\"{}\" is no size; write it like 512MiB, 2GiB or 1048576", text));
}

Result<std::uint64_t> parse_rate(std::string_view text) {
  std::string_view size = trim(text);
  if (size.ends_with("/s")) size.remove_suffix(2);
  if (const auto bytes = parse_with_unit<std::uint64_t>(size, kSizeUnits)) return *bytes;
  return failure(Code::kInvalidArgument,
                 fmt::format("\"{}\" is no rate; write it like 500MB/s or 2GiB/s", text));
}

Result<Nanos> parse_duration(std::string_view text) {
  if (const auto duration = parse_with_unit<Nanos>(text, kTimeUnits)) return *duration;
  return failure(
      Code::kInvalidArgument,
      fmt::format("\"{}\" is no duration; write it like 250us, 32ms, 30s or 5min", text));
}

Result<double> parse_fraction(std::string_view text) {
  std::string_view rest = trim(text);
  std::optional<Number> above = take_number(rest);
  std::optional<Number> below = Number{1, 1};
  if (above && rest.starts_with("/")) {
    rest.remove_prefix(1);
    below = take_number(rest);
  }
  if (above && below && rest.empty() && above->value > 0 && below->value > 0) {
    return above->value / below->value;
  }
  return failure(
      Code::kInvalidArgument,
      fmt::format("\"{}\" is no fraction greater than 0; write it like 1/256 or 0.05", text));
}

std::string format_size(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  std::string number = fmt::format("{:.1f}", value);
  if (number.ends_with(".0")) number.resize(number.size() - 2);
  return fmt::format("{} {}", number, kNames[unit]);
}

std::string format_rate(double bytes_per_s) {
  static constexpr std::array<std::string_view, 5> kNames = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  double value = bytes_per_s;
  std::size_t unit = 0;
  while (value >= 999.5 && unit + 1 < kNames.size()) {
    value /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", value, kNames[unit]);
}

std::string format_duration(Nanos duration_ns) {
  if (duration_ns == kNever) return "never";
  const auto value = static_cast<double>(duration_ns);
  const double size = std::abs(value);
  if (size < 999.5) return fmt::format("{} ns", duration_ns);
  if (size < 999.5e3) return fmt::format("{:.3g} us", value / 1e3);
  if (size < 999.5e6) return fmt::format("{:.3g} ms", value / 1e6);
  if (size < 120e9) return fmt::format("{:.3g} s", value / 1e9);
  if (size < 7200e9) return fmt::format("{:.3g} min", value / 60e9);
  return fmt::format("{:.3g} h", value / 3600e9);
}

}  // namespace kvstream
