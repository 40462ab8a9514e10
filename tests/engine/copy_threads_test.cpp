#include "engine/copy_threads.hpp"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>

#include "core/checksum.hpp"

namespace kvstream {
namespace {

std::vector<std::byte> bytes_of(std::size_t size, int salt) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) {
    bytes[i] = static_cast<std::byte>((i * 7 + static_cast<std::size_t>(salt)) & 0xFF);
  }
  return bytes;
}

TEST(Place, CopiesToEveryDestinationAcrossSpans) {
  const auto from = bytes_of(10'000, 1);
  std::vector<std::byte> first(10'000), second(10'000);
  const Span into[] = {{first.data(), 3000}, {first.data() + 3000, 7000}, {second.data(), 10'000}};
  const auto done = place({7, from.data(), 10'000, checksum(from), true, 2, into});
  EXPECT_TRUE(done.good);
  EXPECT_EQ(done.id, 7U);
  EXPECT_EQ(first, from);
  EXPECT_EQ(second, from);
}

TEST(Place, BadBytesNeverMeetTheDestination) {
  const auto from = bytes_of(10'000, 1);
  std::vector<std::byte> into(10'000, std::byte{0x55});
  const auto untouched = into;
  const Span spans[] = {{into.data(), into.size()}};
  EXPECT_FALSE(place({1, from.data(), 10'000, checksum(from) ^ 1, true, 1, spans}).good);
  EXPECT_EQ(into, untouched);
}

TEST(Place, VerifiesInPlaceWhatLandedDirect) {
  auto landed = bytes_of(8192, 3);
  const Span spans[] = {{landed.data(), 4096}, {landed.data() + 4096, 4096}};
  const auto sum = checksum(landed);
  EXPECT_TRUE(place({1, nullptr, 8192, sum, true, 1, spans}).good);
  landed[5000] ^= std::byte{1};
  EXPECT_FALSE(place({1, nullptr, 8192, sum, true, 1, spans}).good);
}

TEST(Stage, GathersChecksumsAndPads) {
  const auto whole = bytes_of(5000, 9);
  const ConstSpan from[] = {{whole.data(), 1000}, {whole.data() + 1000, 4000}};
  std::vector<std::byte> slab(8192, std::byte{0xAA});
  const auto done = stage({3, from, slab.data(), 5000, 8192});
  EXPECT_EQ(done.checksum, checksum(whole));
  EXPECT_EQ(std::memcmp(slab.data(), whole.data(), 5000), 0);
  for (std::size_t i = 5000; i < 8192; ++i) ASSERT_EQ(slab[i], std::byte{0});
}

TEST(CopyThreads, EveryJobThatWasTakenIsAnswered) {
  EventFd wake;
  CopyThreads threads(2, 64, wake);
  const auto from = bytes_of(4096, 1);
  std::vector<std::byte> into(4096 * 64);
  std::vector<Span> spans;
  for (std::size_t i = 0; i < 64; ++i) spans.push_back({into.data() + 4096 * i, 4096});
  std::uint64_t taken = 0, answered = 0;
  std::array<PlaceDone, 8> done;
  for (int round = 0; round < 200'000 && answered < 5000; ++round) {
    while (taken < 5000 && threads.submit({taken, from.data(), 4096, checksum(from), true, 1,
                                           std::span(&spans[taken % 64], 1)})) {
      ++taken;
    }
    pollfd fd{wake.fd(), POLLIN, 0};
    ::poll(&fd, 1, 100);
    wake.clear();
    for (auto count = threads.poll(done); count > 0; count = threads.poll(done)) answered += count;
  }
  EXPECT_EQ(answered, 5000U);
  EXPECT_GT(threads.cpu_s(), 0.0);
}

TEST(CopyThreads, RefusesBeyondItsBoundRatherThanWaiting) {
  const auto from = bytes_of(64, 1);
  std::vector<std::byte> into(64);
  const Span span{into.data(), 64};
  EventFd wake;
  CopyThreads threads(1, 4, wake);  // behind the memory: its end waits for jobs that were taken
  std::uint64_t taken = 0;
  while (taken < 100 && threads.submit({taken, from.data(), 64, 0, false, 1, {&span, 1}})) ++taken;
  EXPECT_EQ(taken, 4U);  // answers that nobody has fetched count
}

}  // namespace
}  // namespace kvstream
