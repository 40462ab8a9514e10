// What real tiers were measured to be, in a file that virtual time reads.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvstream/status.hpp"
#include "replay/model_copies.hpp"
#include "replay/model_device.hpp"

namespace kvstream {

/// Rates and times here (not represented), by the names of the tiers.
struct Fit {
  std::map<std::string, DeviceModel> tiers;
  CopiesModel copies;
};

/// {"tiers": {"nvme": {"read_bytes_per_s": .., "write_bytes_per_s": .., "read_latency_s": ..,
/// "write_latency_s": .., "concurrency": .., "disturbance": .., "burst_s": ..}}, "copies":
/// {"threads": .., "copy_bytes_per_s": .., "link_bytes_per_s": ..}}
nlohmann::json to_json(const Fit& fit);
/// Errors name the file and the field.
Result<Fit> read_fit(const std::string& path);

}  // namespace kvstream
