#include "core/bounded_queue.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace kvstream {
namespace {

TEST(BoundedQueue, RefusesWhenFullAndLeavesTheValueAlone) {
  BoundedQueue<std::unique_ptr<int>> queue(2);
  EXPECT_TRUE(queue.push(std::make_unique<int>(1)));
  EXPECT_TRUE(queue.push(std::make_unique<int>(2)));
  auto third = std::make_unique<int>(3);
  EXPECT_FALSE(queue.push(std::move(third)));
  ASSERT_NE(third, nullptr);
  std::unique_ptr<int> got;
  ASSERT_TRUE(queue.pop(got));
  EXPECT_EQ(*got, 1);
  EXPECT_TRUE(queue.push(std::move(third)));
}

TEST(BoundedQueue, AnEmptyQueueGivesNothing) {
  BoundedQueue<int> queue(4);
  int got = 7;
  EXPECT_FALSE(queue.pop(got));
  EXPECT_EQ(got, 7);
}

TEST(BoundedQueue, ManyThreadsLoseAndDoubleNothing) {
  constexpr int kEach = 50'000;
  BoundedQueue<int> queue(64);
  std::atomic<std::int64_t> sum{0};
  std::atomic<int> popped{0};
  std::vector<std::thread> threads;
  for (int producer = 0; producer < 2; ++producer) {
    threads.emplace_back([&] {
      for (int i = 1; i <= kEach; ++i) {
        while (!queue.push(int{i})) std::this_thread::yield();
      }
    });
    threads.emplace_back([&] {
      int got = 0;
      while (popped.load() < 2 * kEach) {
        if (!queue.pop(got)) {
          std::this_thread::yield();
          continue;
        }
        sum += got;
        ++popped;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(popped.load(), 2 * kEach);
  EXPECT_EQ(sum.load(), std::int64_t{kEach} * (kEach + 1));
}

}  // namespace
}  // namespace kvstream
