// Where threads go that are stuck in the kernel.
#pragma once

#include <memory>
#include <thread>
#include <vector>

namespace kvstream {

/// Keeps the thread objects for ever: they are not joined, neither here nor at exit.
void abandon(std::vector<std::thread> threads);
/// Keeps what an abandoned thread may still touch.
void abandon(std::shared_ptr<void> kept);

}  // namespace kvstream
