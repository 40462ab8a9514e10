// include/kvstream/kvstream.h over the engine: checks and converts, decides nothing.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "client/c_works.hpp"
#include "client/embedded.hpp"
#include "core/keys.hpp"
#include "kvstream/kvstream.h"

/// Owned by the caller, from kvstream_open() to kvstream_close().
struct kvstream_engine {
  explicit kvstream_engine(kvstream::Embedded made)
      : embedded(std::move(made)), works(*embedded.engine) {}

  kvstream::Embedded embedded;
  kvstream::WorkTable works;
};

namespace kvstream {
namespace {

static_assert(KVSTREAM_OK == static_cast<int>(Code::kOk) &&
              KVSTREAM_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument) &&
              KVSTREAM_NOT_FOUND == static_cast<int>(Code::kNotFound) &&
              KVSTREAM_IO_ERROR == static_cast<int>(Code::kIoError) &&
              KVSTREAM_CORRUPT == static_cast<int>(Code::kCorrupt) &&
              KVSTREAM_NO_SPACE == static_cast<int>(Code::kNoSpace) &&
              KVSTREAM_OVERLOADED == static_cast<int>(Code::kOverloaded) &&
              KVSTREAM_TIMED_OUT == static_cast<int>(Code::kTimedOut) &&
              KVSTREAM_UNAVAILABLE == static_cast<int>(Code::kUnavailable) &&
              KVSTREAM_CLOSED == static_cast<int>(Code::kClosed));
static_assert(sizeof(kvstream_key) == sizeof(BlockKey) &&
              sizeof(kvstream_lease) == sizeof(LeaseToken));

/// Fixed, so that saying why there is no memory needs none.
thread_local char last_error[512] = "";

int fail(const char* call, Code code, const char* message) noexcept {
  std::snprintf(last_error, sizeof last_error, "%s: %s", call, message);
  return static_cast<int>(code);
}

/// Runs `body`; what it throws becomes a code, as what it returns.
template <class Body>
int guarded(const char* call, Body body) noexcept {
  try {
    const Status status = body();
    return status.is_ok() ? KVSTREAM_OK : fail(call, status.code(), status.message().c_str());
  } catch (const std::bad_alloc&) {
    return fail(call, Code::kNoSpace, "there is no memory left");
  } catch (const std::exception& error) {
    return fail(call, Code::kUnavailable, error.what());
  }
}

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

/// An array of `count` elements may be null only when it has none.
Status check_array(const void* array, std::uint64_t count, const char* name) {
  if (array != nullptr || count == 0) return Status::ok();
  return invalid(fmt::format("{} is null, but {} elements are promised", name, count));
}

Status check_struct(const void* pointer, std::uint64_t has_bytes, std::uint64_t want_bytes,
                    const char* name) {
  if (pointer == nullptr) return invalid(fmt::format("{} is null", name));
  if (has_bytes == want_bytes) return Status::ok();
  return invalid(
      fmt::format("{}.struct_bytes = {}, but this library's is {}; set it to sizeof and "
                  "compile against the library's own header",
                  name, has_bytes, want_bytes));
}

BlockKey key_of(const kvstream_key& key) {
  BlockKey made;
  std::memcpy(made.bytes.data(), key.bytes, sizeof key.bytes);
  return made;
}

LeaseToken token_of(const kvstream_lease& lease) { return {{lease.words[0], lease.words[1]}}; }

Nanos after(std::uint64_t timeout_us) {
  constexpr std::uint64_t kYearUs = 365ULL * 86'400 * 1'000'000;
  const auto wait = static_cast<Nanos>(std::min(timeout_us, kYearUs)) * kMicrosecond;
  return SteadyClock::instance().now() + wait;
}

Result<std::vector<std::string>> texts_of(const char* const* texts, std::uint32_t count,
                                          const char* name) {
  if (Status status = check_array(texts, count, name); !status.is_ok()) return failure(status);
  std::vector<std::string> made;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (texts[i] == nullptr) {
      return failure(Code::kInvalidArgument, fmt::format("{}[{}] is null", name, i));
    }
    made.emplace_back(texts[i]);
  }
  return made;
}

/// The bytes of a block's spans; an error when they are no block.
Result<std::uint32_t> size_of(const kvstream_block& block, std::uint64_t index,
                              std::uint32_t bytes_max) {
  const auto wrong = [&](const std::string& what) {
    return failure(Code::kInvalidArgument, fmt::format("block {} {}", index, what));
  };
  if (block.spans == nullptr || block.count_spans == 0) return wrong("has no spans");
  if (block.count_spans > kSpansMax) {
    return wrong(
        fmt::format("has {} spans; at most {} are possible", block.count_spans, kSpansMax));
  }
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < block.count_spans; ++i) {
    const kvstream_span& span = block.spans[i];
    if (span.data == nullptr && span.size_bytes > 0) return wrong("has a span without memory");
    if (span.size_bytes > bytes_max || (sum += span.size_bytes) > bytes_max) {
      return wrong(fmt::format("has more than block-max = {} B; raise that setting", bytes_max));
    }
  }
  if (sum == 0) return wrong("has no bytes");
  return static_cast<std::uint32_t>(sum);
}

template <class S>
void append_spans(const kvstream_block& block, std::vector<S>& spans) {
  for (std::uint32_t i = 0; i < block.count_spans; ++i) {
    spans.push_back({static_cast<std::byte*>(block.spans[i].data),
                     static_cast<std::size_t>(block.spans[i].size_bytes)});
  }
}

Status load_step(kvstream_engine& engine, const kvstream_step& step, std::uint64_t& work) {
  std::size_t count_spans = 0, count_blocks = 0;
  std::vector<std::uint32_t> sizes;
  for (std::uint64_t r = 0; r < step.count_requests; ++r) {
    const kvstream_load& load = step.requests[r];
    if (Status status = check_array(load.blocks, load.count_blocks, "blocks"); !status.is_ok()) {
      return status;
    }
    for (std::uint64_t i = 0; i < load.count_blocks; ++i) {
      const auto size = size_of(load.blocks[i], i, engine.embedded.block_bytes_max);
      if (!size) return size.error();
      sizes.push_back(*size);
      count_spans += load.blocks[i].count_spans;
    }
    count_blocks += load.count_blocks;
  }
  // Reserved, so that what points into them stays true.
  std::vector<Span> spans;
  std::vector<BlockRequest> blocks;
  std::vector<LoadRequest> loads;
  spans.reserve(count_spans);
  blocks.reserve(count_blocks);
  for (std::uint64_t r = 0; r < step.count_requests; ++r) {
    const kvstream_load& load = step.requests[r];
    const std::size_t first = blocks.size();
    for (std::uint64_t i = 0; i < load.count_blocks; ++i) {
      const std::size_t first_span = spans.size();
      append_spans(load.blocks[i], spans);
      blocks.push_back({key_of(load.blocks[i].key), sizes[blocks.size()],
                        std::span<const Span>(spans).subspan(first_span)});
    }
    loads.push_back({std::span<const BlockRequest>(blocks).subspan(first), token_of(load.lease)});
  }
  const Nanos deadline = step.timeout_us == 0 ? 0 : after(step.timeout_us);
  const auto id = engine.works.load({loads, deadline}, step.states);
  if (!id) return id.error();
  work = *id;
  return Status::ok();
}

Status save_step(kvstream_engine& engine, const kvstream_save& save, std::uint64_t& work) {
  std::size_t count_spans = 0;
  std::vector<std::uint32_t> sizes;
  for (std::uint64_t i = 0; i < save.count_blocks; ++i) {
    const auto size = size_of(save.blocks[i], i, engine.embedded.block_bytes_max);
    if (!size) return size.error();
    sizes.push_back(*size);
    count_spans += save.blocks[i].count_spans;
  }
  std::vector<ConstSpan> spans;
  std::vector<SaveBlock> blocks;
  spans.reserve(count_spans);
  for (std::uint64_t i = 0; i < save.count_blocks; ++i) {
    const kvstream_block& block = save.blocks[i];
    const std::size_t first_span = spans.size();
    append_spans(block, spans);
    blocks.push_back({key_of(block.key), sizes[i],
                      std::span<const ConstSpan>(spans).subspan(first_span), block.position});
  }
  const auto id = engine.works.save({blocks}, save.states);
  if (!id) return id.error();
  work = *id;
  return Status::ok();
}

std::string stats_text(const EngineStats& stats) {
  nlohmann::json tiers = nlohmann::json::array();
  for (const TierStats& tier : stats.tiers) {
    tiers.push_back({{"name", tier.name},
                     {"kind", tier.kind},
                     {"mode", tier.report.mode},
                     {"hits", tier.hits},
                     {"read_bytes", tier.read_bytes},
                     {"written_bytes", tier.written_bytes},
                     {"read_errors", tier.read_errors},
                     {"write_errors", tier.write_errors},
                     {"corrupt", tier.corrupt},
                     {"evicted", tier.evicted}});
  }
  const nlohmann::json all = {{"looked_up", stats.looked_up},
                              {"requested", stats.requested},
                              {"hits", stats.hits},
                              {"misses", stats.misses},
                              {"late", stats.late},
                              {"cancelled", stats.cancelled},
                              {"offered", stats.offered},
                              {"published", stats.published},
                              {"dropped", stats.dropped},
                              {"leases", stats.leases},
                              {"catalog_blocks", stats.catalog_blocks},
                              {"tiers", tiers}};
  return all.dump();
}

}  // namespace
}  // namespace kvstream

using namespace kvstream;

int kvstream_open(const kvstream_options* options, kvstream_engine** engine) {
  return guarded("kvstream_open", [&]() -> Status {
    if (engine == nullptr) return invalid("engine is null");
    *engine = nullptr;
    Status status = check_struct(options, options != nullptr ? options->struct_bytes : 0,
                                 sizeof *options, "options");
    if (!status.is_ok()) return status;
    if (options->api_version != KVSTREAM_API_VERSION) {
      return invalid(
          fmt::format("the caller was compiled for version {} of the C API, this library "
                      "has {}; compile against its header",
                      options->api_version, KVSTREAM_API_VERSION));
    }
    auto tiers = texts_of(options->tiers, options->count_tiers, "tiers");
    if (!tiers) return tiers.error();
    auto settings = texts_of(options->settings, options->count_settings, "settings");
    if (!settings) return settings.error();
    auto fields = texts_of(options->fields, options->count_fields, "fields");
    if (!fields) return fields.error();
    auto made = open_embedded({std::move(*tiers), std::move(*settings), std::move(*fields)});
    if (!made) return made.error();
    *engine = new kvstream_engine(std::move(*made));
    return Status::ok();
  });
}

int kvstream_close(kvstream_engine* engine, uint64_t timeout_us) {
  return guarded("kvstream_close", [&]() -> Status {
    if (engine == nullptr) return invalid("engine is null");
    const std::unique_ptr<kvstream_engine> owned(engine);
    const CloseReport report = engine->embedded.engine->close(after(timeout_us));
    if (!report.abandoned) return Status::ok();
    return {Code::kTimedOut,
            fmt::format("a thread or device is stuck; {} slabs stay mapped, leave the process by "
                        "_exit()",
                        report.slabs_abandoned)};
  });
}

int kvstream_key_of(const kvstream_engine* engine, const void* id, size_t id_bytes,
                    kvstream_key* key) {
  return guarded("kvstream_key_of", [&]() -> Status {
    if (engine == nullptr || key == nullptr) return invalid("engine or key is null");
    if (id == nullptr || id_bytes == 0) return invalid("the id has no bytes");
    const BlockKey made =
        external_key(engine->embedded.namespace_key, {static_cast<const std::byte*>(id), id_bytes});
    std::memcpy(key->bytes, made.bytes.data(), sizeof key->bytes);
    return Status::ok();
  });
}

int kvstream_lookup(kvstream_engine* engine, const kvstream_lookup_request* requests,
                    kvstream_lookup_answer* answers, size_t count_requests) {
  return guarded("kvstream_lookup", [&]() -> Status {
    if (engine == nullptr) return invalid("engine is null");
    if (Status s = check_array(requests, count_requests, "requests"); !s.is_ok()) return s;
    if (Status s = check_array(answers, count_requests, "answers"); !s.is_ok()) return s;
    std::size_t count_keys = 0;
    for (std::size_t r = 0; r < count_requests; ++r) {
      if (Status s = check_array(requests[r].keys, requests[r].count_keys, "keys"); !s.is_ok()) {
        return s;
      }
      count_keys += requests[r].count_keys;
    }
    std::vector<BlockKey> keys;
    std::vector<LookupRequest> wanted;
    keys.reserve(count_keys);
    for (std::size_t r = 0; r < count_requests; ++r) {
      const std::size_t first = keys.size();
      for (std::uint64_t i = 0; i < requests[r].count_keys; ++i) {
        keys.push_back(key_of(requests[r].keys[i]));
      }
      wanted.push_back({std::span<const BlockKey>(keys).subspan(first)});
    }
    const auto got = engine->embedded.engine->lookup(wanted);
    for (std::size_t r = 0; r < count_requests; ++r) {
      answers[r] = {got[r].blocks,
                    got[r].pending ? 1U : 0U,
                    {{got[r].lease.words[0], got[r].lease.words[1]}}};
    }
    return Status::ok();
  });
}

int kvstream_release(kvstream_engine* engine, const kvstream_lease* lease) {
  return guarded("kvstream_release", [&]() -> Status {
    if (engine == nullptr || lease == nullptr) return invalid("engine or lease is null");
    engine->embedded.engine->release(token_of(*lease));
    return Status::ok();
  });
}

int kvstream_load_step(kvstream_engine* engine, const kvstream_step* step, uint64_t* work) {
  return guarded("kvstream_load_step", [&]() -> Status {
    if (engine == nullptr || work == nullptr) return invalid("engine or work is null");
    Status status =
        check_struct(step, step != nullptr ? step->struct_bytes : 0, sizeof *step, "step");
    if (!status.is_ok()) return status;
    status = check_array(step->requests, step->count_requests, "requests");
    return status.is_ok() ? load_step(*engine, *step, *work) : status;
  });
}

int kvstream_save_step(kvstream_engine* engine, const kvstream_save* save, uint64_t* work) {
  return guarded("kvstream_save_step", [&]() -> Status {
    if (engine == nullptr || work == nullptr) return invalid("engine or work is null");
    Status status =
        check_struct(save, save != nullptr ? save->struct_bytes : 0, sizeof *save, "save");
    if (!status.is_ok()) return status;
    status = check_array(save->blocks, save->count_blocks, "blocks");
    return status.is_ok() ? save_step(*engine, *save, *work) : status;
  });
}

int kvstream_cancel(kvstream_engine* engine, uint64_t work, uint64_t timeout_us) {
  return guarded("kvstream_cancel", [&]() -> Status {
    if (engine == nullptr) return invalid("engine is null");
    return engine->works.cancel(work, after(timeout_us));
  });
}

int kvstream_poll(kvstream_engine* engine, kvstream_event* events, size_t count_max,
                  size_t* count) {
  return guarded("kvstream_poll", [&]() -> Status {
    if (engine == nullptr || count == nullptr) return invalid("engine or count is null");
    if (events == nullptr || count_max == 0) return invalid("there is no room for events");
    *count = engine->works.poll({events, count_max});
    return Status::ok();
  });
}

int kvstream_event_fd(const kvstream_engine* engine, int* fd) {
  return guarded("kvstream_event_fd", [&]() -> Status {
    if (engine == nullptr || fd == nullptr) return invalid("engine or fd is null");
    *fd = engine->embedded.engine->event_fd();
    return Status::ok();
  });
}

int kvstream_drop(kvstream_engine* engine, const kvstream_key* keys, size_t count_keys) {
  return guarded("kvstream_drop", [&]() -> Status {
    if (engine == nullptr) return invalid("engine is null");
    if (Status s = check_array(keys, count_keys, "keys"); !s.is_ok()) return s;
    std::vector<BlockKey> gone;
    for (std::size_t i = 0; i < count_keys; ++i) gone.push_back(key_of(keys[i]));
    engine->embedded.engine->drop(gone, ~std::uint64_t{0});
    return Status::ok();
  });
}

int kvstream_stats(const kvstream_engine* engine, char* text, size_t text_bytes,
                   size_t* needed_bytes) {
  return guarded("kvstream_stats", [&]() -> Status {
    if (engine == nullptr || needed_bytes == nullptr) {
      return invalid("engine or needed_bytes is null");
    }
    const std::string all = stats_text(engine->embedded.engine->stats());
    *needed_bytes = all.size() + 1;
    if (text == nullptr || text_bytes < *needed_bytes) {
      return {Code::kNoSpace, fmt::format("the text needs {} bytes", *needed_bytes)};
    }
    std::memcpy(text, all.c_str(), *needed_bytes);
    return Status::ok();
  });
}

const char* kvstream_last_error(void) { return last_error; }

uint32_t kvstream_api_version(void) { return KVSTREAM_API_VERSION; }
