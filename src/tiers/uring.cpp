#include "tiers/uring.hpp"

#include <fcntl.h>

#include <cerrno>
#include <system_error>

namespace kvstream {
namespace {

std::string reason(int error) { return std::generic_category().message(error); }

}  // namespace

Result<std::unique_ptr<Uring>> Uring::open(std::uint32_t entries) {
  std::unique_ptr<Uring> uring(new Uring());
  if (uring->event_.fd() < 0) return failure(Code::kUnavailable, "no eventfd is to be had");
  const int error = -io_uring_queue_init(entries, &uring->ring_, 0);
  if (error != 0) {
    return failure(Code::kUnavailable, "the system refuses io_uring (" + reason(error) + ")");
  }
  uring->opened_ = true;
  if (const int refused = -io_uring_register_eventfd(&uring->ring_, uring->event_.fd());
      refused != 0) {
    return failure(Code::kUnavailable, "io_uring takes no eventfd (" + reason(refused) + ")");
  }
  return uring;
}

Uring::~Uring() {
  if (opened_ && !abandoned_) io_uring_queue_exit(&ring_);
}

io_uring_sqe* Uring::next() { return broken_ ? nullptr : io_uring_get_sqe(&ring_); }

bool Uring::prepare_readv(int fd, const iovec* spans, std::uint32_t count,
                          std::uint64_t offset_bytes, std::uint64_t tag) {
  io_uring_sqe* sqe = next();
  if (sqe == nullptr) return false;
  if (count == 1) {
    io_uring_prep_read(sqe, fd, spans->iov_base, static_cast<unsigned>(spans->iov_len),
                       offset_bytes);
  } else {
    io_uring_prep_readv(sqe, fd, spans, count, offset_bytes);
  }
  sqe->user_data = tag;
  return true;
}

bool Uring::prepare_write(int fd, const void* from, std::uint32_t size_bytes,
                          std::uint64_t offset_bytes, std::uint64_t tag) {
  io_uring_sqe* sqe = next();
  if (sqe == nullptr) return false;
  io_uring_prep_write(sqe, fd, from, size_bytes, offset_bytes);
  sqe->user_data = tag;
  return true;
}

bool Uring::prepare_sync(int fd, std::uint32_t size_bytes, std::uint64_t offset_bytes,
                         std::uint64_t tag) {
  io_uring_sqe* sqe = next();
  if (sqe == nullptr) return false;
  io_uring_prep_sync_file_range(
      sqe, fd, size_bytes, offset_bytes,
      SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  sqe->user_data = tag;
  return true;
}

bool Uring::prepare_drop(int fd, std::uint32_t size_bytes, std::uint64_t offset_bytes,
                         std::uint64_t tag) {
  io_uring_sqe* sqe = next();
  if (sqe == nullptr) return false;
  io_uring_prep_fadvise(sqe, fd, offset_bytes, static_cast<off_t>(size_bytes), POSIX_FADV_DONTNEED);
  sqe->user_data = tag;
  return true;
}

Result<std::uint32_t> Uring::submit() {
  if (broken_) return failure(Code::kIoError, "the ring is out of use after an earlier error");
  const int taken = io_uring_submit(&ring_);
  if (taken >= 0) return static_cast<std::uint32_t>(taken);
  if (taken == -EAGAIN || taken == -EBUSY || taken == -EINTR || taken == -ENOMEM) return 0U;
  broken_ = true;
  return failure(Code::kIoError, "io_uring_submit failed (" + reason(-taken) + ")");
}

std::optional<Uring::Reaped> Uring::reap() {
  io_uring_cqe* cqe = nullptr;
  if (io_uring_peek_cqe(&ring_, &cqe) != 0 || cqe == nullptr) return std::nullopt;
  const Reaped reaped{cqe->user_data, cqe->res};
  io_uring_cqe_seen(&ring_, cqe);
  return reaped;
}

void Uring::wait(std::uint32_t wait_ms) {
  io_uring_cqe* cqe = nullptr;
  __kernel_timespec limit{wait_ms / 1000, static_cast<long long>(wait_ms % 1000) * 1'000'000};
  (void)io_uring_wait_cqe_timeout(&ring_, &cqe, &limit);
}

}  // namespace kvstream
