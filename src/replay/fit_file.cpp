#include "replay/fit_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace kvstream {
namespace {

using nlohmann::json;

constexpr double kCountMax = 1e6;
constexpr double kTimeMax_s = 1e6;

/// A figure >= 0, or `standard` when it is absent. NaN stands for a field that is no such figure.
double figure(const json& from, const char* name, double standard) {
  const auto found = from.find(name);
  if (found == from.end()) return standard;
  return found->is_number() && found->get<double>() >= 0 ? found->get<double>() : std::nan("");
}

Result<DeviceModel> device_of(const json& from) {
  DeviceModel model;
  model.read_bytes_per_s = figure(from, "read_bytes_per_s", 0);
  model.write_bytes_per_s = figure(from, "write_bytes_per_s", 0);
  model.disturbance = figure(from, "disturbance", 0);
  const double burst_s = figure(from, "burst_s", 0);
  const double read_s = figure(from, "read_latency_s", 0),
               write_s = figure(from, "write_latency_s", 0),
               concurrency = figure(from, "concurrency", 0);
  const double sum = model.read_bytes_per_s + model.write_bytes_per_s + model.disturbance + read_s +
                     write_s + concurrency + burst_s;
  if (std::isnan(sum)) {
    return failure(Code::kInvalidArgument, "a figure is no number, or below 0");
  }
  if (model.disturbance > 1 || std::max({burst_s, read_s, write_s}) > kTimeMax_s) {
    return failure(Code::kInvalidArgument, "disturbance is a share (at most 1), times are seconds");
  }
  model.read_latency_ns = static_cast<Nanos>(read_s * 1e9);
  model.write_latency_ns = static_cast<Nanos>(write_s * 1e9);
  model.concurrency = static_cast<std::uint32_t>(std::min(concurrency, kCountMax));
  model.burst_ns = static_cast<Nanos>(burst_s * 1e9);
  return model;
}

}  // namespace

json to_json(const Fit& fit) {
  json tiers = json::object();
  for (const auto& [name, model] : fit.tiers) {
    tiers[name] = {{"read_bytes_per_s", model.read_bytes_per_s},
                   {"write_bytes_per_s", model.write_bytes_per_s},
                   {"read_latency_s", static_cast<double>(model.read_latency_ns) * 1e-9},
                   {"write_latency_s", static_cast<double>(model.write_latency_ns) * 1e-9},
                   {"concurrency", model.concurrency},
                   {"disturbance", model.disturbance},
                   {"burst_s", static_cast<double>(model.burst_ns) * 1e-9}};
  }
  return {{"tiers", tiers},
          {"copies",
           {{"threads", fit.copies.threads},
            {"copy_bytes_per_s", fit.copies.copy_bytes_per_s},
            {"link_bytes_per_s", fit.copies.link_bytes_per_s}}}};
}

Result<Fit> read_fit(const std::string& path) {
  std::ifstream file(path);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {
    return failure(Code::kNotFound,
                   "cannot read the fit file " + path + "; `kvstream bench fit` makes one");
  }
  const json root = json::parse(file, nullptr, false);
  if (!root.is_object() || !root.contains("tiers") || !root.at("tiers").is_object()) {
    return failure(Code::kInvalidArgument,
                   path + " has no \"tiers\": `kvstream bench fit` makes one");
  }
  Fit fit;
  for (const auto& [name, tier] : root.at("tiers").items()) {
    auto model =
        tier.is_object() ? device_of(tier) : failure(Code::kInvalidArgument, "it is no object");
    if (!model) {
      return failure(Code::kInvalidArgument,
                     fmt::format("{}: tier {}: {}", path, name, model.error().message()));
    }
    fit.tiers[name] = *model;
  }
  const json copies = root.value("copies", json::object());
  const double threads = figure(copies, "threads", 1);
  fit.copies.copy_bytes_per_s = figure(copies, "copy_bytes_per_s", 0);
  fit.copies.link_bytes_per_s = figure(copies, "link_bytes_per_s", 0);
  if (!copies.is_object() ||
      std::isnan(threads + fit.copies.copy_bytes_per_s + fit.copies.link_bytes_per_s)) {
    return failure(Code::kInvalidArgument, path + ": copies: a figure is no number, or below 0");
  }
  fit.copies.threads = static_cast<std::uint32_t>(std::clamp(threads, 1.0, kCountMax));
  return fit;
}

}  // namespace kvstream
