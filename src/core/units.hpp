// "2GiB", "500MB/s", "1ms", "1/256": the forms that people write, and back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kvstream/clock.hpp"
#include "kvstream/status.hpp"

namespace kvstream {

/// Bytes: a number with B, kB, MB, GB, TB (powers of 1000) or KiB, MiB, GiB, TiB, K, M, G, T
/// (1024).
Result<std::uint64_t> parse_size(std::string_view text);
/// As parse_size, with "/s" behind it (optional).
Result<std::uint64_t> parse_rate(std::string_view text);
/// A number with ns, us, ms, s, min or h; a bare number is seconds.
Result<Nanos> parse_duration(std::string_view text);
/// "1/256" or "0.5"; greater than 0.
Result<double> parse_fraction(std::string_view text);

std::string format_size(std::uint64_t bytes);    ///< "3.5 GiB"
std::string format_rate(double bytes_per_s);     ///< "500 MB/s"
std::string format_duration(Nanos duration_ns);  ///< "12.3 ms"

}  // namespace kvstream
