// An engine inside the caller's process, of one rank and without MPI, from what people write.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvstream/block.hpp"
#include "kvstream/engine.hpp"

namespace kvstream {

/// As on the command line; include/kvstream/kvstream.h lists the forms.
struct EmbeddedOptions {
  std::vector<std::string> tiers;     ///< "nvme0=nvme:/mnt/nvme0,cap=2GiB"
  std::vector<std::string> settings;  ///< "block-max=2MiB"
  std::vector<std::string> fields;    ///< of the namespace: "model=NAME"
};

/// What open_embedded() hands to its caller.
struct Embedded {
  std::unique_ptr<Engine> engine;
  BlockKey namespace_key;
  std::uint32_t block_bytes_max = 0;
};

/// Logs warnings and worse, unless the setting `log` or KVSTREAM_LOG says otherwise. Errors name
/// the word that is wrong.
Result<Embedded> open_embedded(const EmbeddedOptions& options);

}  // namespace kvstream
