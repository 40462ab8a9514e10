#include <gtest/gtest.h>

#include <cstring>

#include "memory/arena.hpp"
#include "memory/device.hpp"

namespace kvstream {
namespace {

TEST(Accelerator, SaysWhatIsThereOrWhyNothingIs) {
  EXPECT_FALSE(accelerator_report().empty());
  if (accelerator_count() == 0) {
    EXPECT_EQ(accelerator_report().rfind("none", 0), 0U) << accelerator_report();
  } else {
    EXPECT_NE(accelerator_report().find("device"), std::string::npos) << accelerator_report();
  }
}

TEST(HostPin, PinsExactlyWhenThereIsAnAccelerator) {
  const auto arena = Arena::open({.bytes = 4U << 20U});
  ASSERT_TRUE(arena.has_value()) << arena.error().to_string();
  Result<HostPin> pin = HostPin::open((*arena)->region());
  ASSERT_TRUE(pin.has_value()) << pin.error().to_string();
  EXPECT_EQ(pin->pinned(), accelerator_count() > 0);

  HostPin moved = std::move(*pin);
  EXPECT_FALSE(pin->pinned());
  EXPECT_EQ(moved.pinned(), accelerator_count() > 0);
  std::memset((*arena)->region().data, 1, (*arena)->region().size_bytes);
  moved = HostPin();
  EXPECT_FALSE(moved.pinned());
  // Given back, so it can be pinned again.
  EXPECT_TRUE(HostPin::open((*arena)->region()).has_value());
}

}  // namespace
}  // namespace kvstream
