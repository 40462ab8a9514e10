#include "core/logging.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

namespace kvstream {
namespace {

// All loggers of the process. Lives until the process ends: a thread that was abandoned in the
// kernel may still want to log while statics are destroyed.
struct Registry {
  std::mutex mutex;
  std::shared_ptr<spdlog::sinks::sink> sink =
      std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  std::map<std::string, std::shared_ptr<spdlog::logger>> loggers;
  spdlog::level::level_enum level = spdlog::level::info;
  std::string pattern = pattern_of(0);

  static std::string pattern_of(std::uint32_t rank) {
    return fmt::format("%H:%M:%S.%e [rank {}] [%n] [%^%l%$] %v", rank);
  }
  static Registry& instance() {
    static auto* registry = new Registry;
    return *registry;
  }
};

std::optional<spdlog::level::level_enum> level_of(const std::string& name) {
  if (name == "error") return spdlog::level::err;
  if (name == "warn") return spdlog::level::warn;
  if (name == "info") return spdlog::level::info;
  if (name == "debug") return spdlog::level::debug;
  if (name == "off") return spdlog::level::off;
  return {};
}

}  // namespace

spdlog::logger& logger(const std::string& layer) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  std::shared_ptr<spdlog::logger>& found = registry.loggers[layer];
  if (!found) {
    found = std::make_shared<spdlog::logger>(layer, registry.sink);
    found->set_pattern(registry.pattern);
    found->set_level(registry.level);
    found->flush_on(spdlog::level::warn);
  }
  return *found;
}

Status setup_logging(std::uint32_t rank, const std::string& level) {
  const char* override_level = std::getenv("KVSTREAM_LOG");
  const std::string name = override_level != nullptr ? override_level : level;
  const std::optional<spdlog::level::level_enum> wanted = level_of(name);
  if (!wanted) {
    return {Code::kInvalidArgument,
            fmt::format("\"{}\" is no log level; use error, warn, info, debug or off", name)};
  }
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  registry.level = *wanted;
  registry.pattern = Registry::pattern_of(rank);
  registry.sink->set_pattern(registry.pattern);
  for (auto& [layer, made] : registry.loggers) made->set_level(registry.level);
  return Status::ok();
}

bool LogLimiter::admit(Nanos now, std::uint64_t& suppressed) {
  Nanos next = next_.load(std::memory_order_relaxed);
  // Whoever moves the time on writes the line; the others of the same moment are counted.
  if (now < next || !next_.compare_exchange_strong(next, now + interval_ns_)) {
    suppressed_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  suppressed = suppressed_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace kvstream
