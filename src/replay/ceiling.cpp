#include "replay/ceiling.hpp"

#include <algorithm>
#include <numeric>

namespace kvstream {

double read_time_ceiling(std::span<const double> read_rates_bytes_per_s) {
  if (read_rates_bytes_per_s.empty() || !(read_rates_bytes_per_s[0] > 0)) return 0;
  const double sum =
      std::accumulate(read_rates_bytes_per_s.begin(), read_rates_bytes_per_s.end(), 0.0);
  return sum / read_rates_bytes_per_s[0];
}

ThroughputCeiling throughput_ceiling(std::span<const TierRates> tiers, const RivalShares& rival,
                                     Replication replication) {
  ThroughputCeiling result;
  if (rival.rival_tier >= tiers.size()) return result;
  double all_reads = 0;
  for (const TierRates& tier : tiers) all_reads += tier.read_bytes_per_s;
  if (!(all_reads > 0)) return result;

  const TierRates& first = tiers[rival.rival_tier];
  result.a = 1 - rival.reads - rival.writes + rival.reads * first.read_bytes_per_s / all_reads;
  double work = rival.reads * first.read_bytes_per_s;
  if (replication == Replication::kOne) work += rival.writes * first.read_bytes_per_s;
  if (replication == Replication::kAll) {
    for (const TierRates& tier : tiers) {
      // Its writes take w1/w_i as long there; counted in the bytes it could have read meanwhile.
      if (!(tier.write_bytes_per_s > 0)) continue;
      const double times_as_long = first.write_bytes_per_s / tier.write_bytes_per_s;
      work += rival.writes * times_as_long * tier.read_bytes_per_s;
    }
  }
  result.d = work / all_reads;
  const double least = std::max(result.a, result.d);
  result.ceiling = least > 0 ? 1 / least : 0;
  return result;
}

}  // namespace kvstream
