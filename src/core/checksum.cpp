#include "core/checksum.hpp"

// Makes the state's size known, so that it lives on the stack.
#define XXH_STATIC_LINKING_ONLY
// The dispatching header picks AVX2 or AVX-512 at run time; Debian's plain symbol is SSE2 only.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

#include <algorithm>
#include <cstring>

namespace kvstream {
namespace {

// Source and destination of a piece both stay in the first-level cache between copy and hash.
constexpr std::size_t kPieceBytes = 8 * 1024;

// XXH3_state_t is 576 bytes and wants 64-byte alignment, which the stack gives.
class Stream {
 public:
  Stream() { XXH3_64bits_reset(&state_); }
  void add(const std::byte* data, std::size_t size_bytes) {
    XXH3_64bits_update(&state_, data, size_bytes);
  }
  std::uint64_t digest() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

void copy_piecewise(Stream& stream, const std::byte* from, std::byte* into,
                    std::size_t size_bytes) {
  while (size_bytes > 0) {
    const std::size_t piece = std::min(size_bytes, kPieceBytes);
    std::memcpy(into, from, piece);
    stream.add(from, piece);
    from += piece;
    into += piece;
    size_bytes -= piece;
  }
}

}  // namespace

std::uint64_t checksum(std::span<const std::byte> data) noexcept {
  return XXH3_64bits(data.data(), data.size());
}

std::uint64_t copy_and_checksum(ConstSpan from, std::span<const Span> into) noexcept {
  Stream stream;
  std::size_t done = 0;
  for (const Span& span : into) {
    const std::size_t size = std::min(span.size_bytes, from.size_bytes - done);
    copy_piecewise(stream, from.data + done, span.data, size);
    done += size;
  }
  return stream.digest();
}

std::uint64_t gather_and_checksum(std::span<const ConstSpan> from, std::byte* into) noexcept {
  Stream stream;
  for (const ConstSpan& span : from) {
    copy_piecewise(stream, span.data, into, span.size_bytes);
    into += span.size_bytes;
  }
  return stream.digest();
}

std::uint64_t checksum_spans(std::span<const Span> spans, std::size_t size_bytes) noexcept {
  if (!spans.empty() && spans.front().size_bytes >= size_bytes) {
    return checksum({spans.front().data, size_bytes});
  }
  Stream stream;
  for (const Span& span : spans) {
    const std::size_t size = std::min(span.size_bytes, size_bytes);
    stream.add(span.data, size);
    size_bytes -= size;
  }
  return stream.digest();
}

}  // namespace kvstream
