// The files that a run leaves.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "kvstream/status.hpp"

namespace kvstream {

/// Whether a file can be written at `path`, asked before a long run and not after it ("" and "-"
/// are fine). Leaves no file behind that was not there.
Status check_writable(const std::string& path);
/// Writes aside and renames; "-" is stdout.
Status write_json(const std::string& path, const nlohmann::json& json);

}  // namespace kvstream
