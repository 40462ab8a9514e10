#include "engine/copy_threads.hpp"

#include <time.h>

#include <algorithm>
#include <cstring>

#include "core/checksum.hpp"

namespace kvstream {
namespace {

std::int64_t thread_cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

/// Copies one run of bytes over the spans of one copy; returns the spans behind them.
std::span<const Span> scatter(const std::byte* from, std::size_t size, std::span<const Span> into) {
  std::size_t used = 0;
  while (size > 0 && used < into.size()) {
    const auto part = std::min(size, into[used].size_bytes);
    std::memcpy(into[used].data, from, part);
    from += part;
    size -= part;
    ++used;
  }
  return into.subspan(used);
}

}  // namespace

PlaceDone place(const PlaceJob& job) {
  if (job.from == nullptr) {  // landed direct: only to be verified
    return {job.id, !job.verify || checksum_spans(job.into, job.size_bytes) == job.checksum};
  }
  // Bad bytes must never meet the engine's memory, so the checksum comes before the first copy.
  if (job.verify && checksum({job.from, job.size_bytes}) != job.checksum) return {job.id, false};
  auto rest = job.into;
  for (std::uint32_t copy = 0; copy < job.copies; ++copy) {
    rest = scatter(job.from, job.size_bytes, rest);
  }
  return {job.id, true};
}

StageDone stage(const StageJob& job) {
  const auto sum = gather_and_checksum(job.from, job.into);
  if (job.padded_bytes > job.size_bytes) {
    std::memset(job.into + job.size_bytes, 0, job.padded_bytes - job.size_bytes);
  }
  return {job.id, sum};
}

CopyThreads::CopyThreads(std::uint32_t threads, std::uint32_t jobs_max, const EventFd& wake)
    : wake_(wake), jobs_(jobs_max), placed_(jobs_max), staged_(jobs_max), room_(jobs_max) {
  for (std::uint32_t i = 0; i < std::max(1U, threads); ++i) {
    threads_.emplace_back([this] { run(); });
  }
}

CopyThreads::~CopyThreads() { close(); }

void CopyThreads::close() {
  stopping_.store(true, std::memory_order_release);
  for (std::size_t i = 0; i < threads_.size(); ++i) work_.release();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

bool CopyThreads::submit(const PlaceJob& job) {
  if (room_.fetch_sub(1) <= 0 || !jobs_.push(Job(job))) {
    room_.fetch_add(1);
    return false;
  }
  work_.release();
  return true;
}

bool CopyThreads::submit_stage(const StageJob& job) {
  if (room_.fetch_sub(1) <= 0 || !jobs_.push(Job(job))) {
    room_.fetch_add(1);
    return false;
  }
  work_.release();
  return true;
}

std::size_t CopyThreads::poll(std::span<PlaceDone> out) {
  std::size_t count = 0;
  while (count < out.size() && placed_.pop(out[count])) ++count;
  room_.fetch_add(static_cast<std::int64_t>(count));
  return count;
}

std::size_t CopyThreads::poll_staged(std::span<StageDone> out) {
  std::size_t count = 0;
  while (count < out.size() && staged_.pop(out[count])) ++count;
  room_.fetch_add(static_cast<std::int64_t>(count));
  return count;
}

void CopyThreads::run() {
  Job job;
  for (;;) {
    work_.acquire();
    // A pop may find nothing for a moment while another thread pushes; only `stopping_` ends.
    while (!jobs_.pop(job)) {
      if (stopping_.load(std::memory_order_acquire)) return;
      std::this_thread::yield();
    }
    const auto began = thread_cpu_ns();
    perform(job);
    cpu_ns_.fetch_add(thread_cpu_ns() - began, std::memory_order_relaxed);
    wake_.ring();
  }
}

void CopyThreads::perform(const Job& job) {
  if (const auto* to_place = std::get_if<PlaceJob>(&job)) {
    placed_.push(place(*to_place));
  } else {
    staged_.push(stage(std::get<StageJob>(job)));
  }
}

}  // namespace kvstream
