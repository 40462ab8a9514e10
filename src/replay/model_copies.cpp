#include "replay/model_copies.hpp"

#include <algorithm>
#include <cmath>

namespace kvstream {

ModelCopies::ModelCopies(const CopiesModel& model, const Clock& clock)
    : model_(model), clock_(clock), thread_free_ns_(std::max(1U, model.threads), 0.0) {}

Nanos ModelCopies::end_of(std::uint64_t bytes, double& link_free_ns) {
  const auto size = static_cast<double>(bytes);
  auto at = static_cast<double>(clock_.now());
  if (model_.copy_bytes_per_s > 0) {
    double& thread = *std::min_element(thread_free_ns_.begin(), thread_free_ns_.end());
    at = thread = std::max(thread, at) + size * 1e9 / model_.copy_bytes_per_s;
  }
  if (model_.link_bytes_per_s > 0) {
    at = link_free_ns = std::max(link_free_ns, at) + size * 1e9 / model_.link_bytes_per_s;
  }
  return static_cast<Nanos>(std::ceil(at));
}

bool ModelCopies::submit(const PlaceJob& job) {
  const std::uint64_t bytes = std::uint64_t{job.size_bytes} * std::max(1U, job.copies);
  placing_.push({end_of(bytes, link_in_free_ns_), ++sequence_, job.id});
  return true;
}

bool ModelCopies::submit_stage(const StageJob& job) {
  staging_.push({end_of(job.size_bytes, link_out_free_ns_), ++sequence_, job.id});
  return true;
}

template <class Done>
std::size_t ModelCopies::take(Jobs& jobs, std::span<Done> out, Done (*done)(std::uint64_t id)) {
  std::size_t count = 0;
  for (; count < out.size() && !jobs.empty() && jobs.top().end <= clock_.now(); jobs.pop()) {
    out[count++] = done(jobs.top().id);
  }
  return count;
}

std::size_t ModelCopies::poll(std::span<PlaceDone> out) {
  return take<PlaceDone>(placing_, out, [](std::uint64_t id) { return PlaceDone{id, true}; });
}

std::size_t ModelCopies::poll_staged(std::span<StageDone> out) {
  return take<StageDone>(staging_, out, [](std::uint64_t id) { return StageDone{id, 0}; });
}

Nanos ModelCopies::next_event() const {
  const Nanos placed = placing_.empty() ? kNever : placing_.top().end;
  return staging_.empty() ? placed : std::min(placed, staging_.top().end);
}

}  // namespace kvstream
