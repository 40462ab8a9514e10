#include "client/embedded.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <string_view>
#include <utility>

#include "client/tier_kinds.hpp"
#include "config/settings.hpp"
#include "config/tier_spec.hpp"
#include "core/keys.hpp"
#include "core/logging.hpp"
#include "memory/memory_limit.hpp"
#include "ranks/solo_group.hpp"

namespace kvstream {
namespace {

/// Sets "NAME=VALUE" texts.
Status set_all(SettingsTable& table, const std::vector<std::string>& texts, std::string_view what) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
      return {Code::kInvalidArgument,
              fmt::format("{} \"{}\" has no value; write it like name=value", what, text)};
    }
    const std::string_view view = text;
    Status status =
        table.set(view.substr(0, equals), view.substr(equals + 1), ValueSource::kCommandLine);
    if (!status.is_ok()) return status;
  }
  return Status::ok();
}

void add_namespace_fields(SettingsTable& table, Namespace& ns) {
  using enum ValueKind;
  const auto count = [&](const char* name, std::uint32_t* target, double min) {
    table.add({.name = name, .kind = kCount, .help = "", .unit = "", .target = target, .min = min});
  };
  const auto text = [&](const char* name, std::string* target) {
    table.add({.name = name, .kind = kText, .help = "", .unit = "", .target = target});
  };
  text("model", &ns.model);
  text("revision", &ns.revision);
  text("dtype", &ns.dtype);
  text("salt", &ns.salt);
  count("layout-version", &ns.layout_version, 0);
  count("tokens-per-block", &ns.tokens_per_block, 1);
  count("tp-size", &ns.tp_size, 1);
  count("tp-rank", &ns.tp_rank, 0);
  count("pp-size", &ns.pp_size, 1);
  count("pp-rank", &ns.pp_rank, 0);
}

Result<std::vector<TierSpec>> read_tiers(const std::vector<std::string>& texts,
                                         const Group& group) {
  std::vector<TierSpec> tiers;
  for (const std::string& text : texts) {
    auto spec = parse_tier_spec(text);
    if (!spec) return failure(spec.error());
    if (spec->cap_bytes == 0) {
      return failure(Code::kInvalidArgument,
                     fmt::format("tier {} has no cap; write e.g. cap=2GiB behind it", spec->name));
    }
    tiers.push_back(std::move(*spec));
  }
  Status status = expand_paths(tiers, {group.rank(), group.node(), group.job()});
  if (!status.is_ok()) return failure(status);
  return tiers;
}

}  // namespace

Result<Embedded> open_embedded(const EmbeddedOptions& options) {
  EngineConfig config;
  config.log = "warn";  // standard error is the host program's
  SettingsTable table;
  add_engine_settings(table, config);
  if (Status status = table.load_environment(environ); !status.is_ok()) return failure(status);
  if (Status status = set_all(table, options.settings, "setting"); !status.is_ok()) {
    return failure(status);
  }
  Namespace ns;
  SettingsTable fields;
  add_namespace_fields(fields, ns);
  if (Status status = set_all(fields, options.fields, "field"); !status.is_ok()) {
    return failure(status);
  }
  if (Status status = setup_logging(0, config.log); !status.is_ok()) return failure(status);

  const SoloGroup group(config.node);
  auto tiers = read_tiers(options.tiers, group);
  if (!tiers) return failure(tiers.error());
  std::uint64_t memory_bytes = config.settings.pool_bytes;
  for (const TierSpec& spec : *tiers) memory_bytes += spec.path.empty() ? spec.cap_bytes : 0;
  if (Status status = check_memory(memory_bytes, "pool and memory tiers (lower pool or their cap)");
      !status.is_ok()) {
    return failure(status);
  }

  Embedded made;
  made.namespace_key = namespace_key(ns);
  made.block_bytes_max = config.settings.block_bytes_max;
  TierContext context;
  context.node = group.node();
  context.job = group.job();
  context.namespace_fingerprint = namespace_fingerprint(made.namespace_key);
  context.block_bytes_max = made.block_bytes_max;
  context.clock = &SteadyClock::instance();
  auto parts = make_tier_parts(*tiers, context, tier_kinds());
  if (!parts) return failure(parts.error());
  auto engine = Engine::open({config.settings, config.mode, context}, std::move(parts->parts));
  if (!engine) return failure(engine.error());
  made.engine = std::move(*engine);
  return made;
}

}  // namespace kvstream
