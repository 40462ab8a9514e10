#include "step/client_turns.hpp"

namespace kvstream {

std::uint32_t ClientTurns::enter(std::uint32_t client) {
  auto at = std::find_if(seats_.begin(), seats_.end(),
                         [&](const Seat& seat) { return seat.client == client; });
  if (at == seats_.end() && seats_.size() < kClientsMax) {
    at = seats_.insert(at, {client, 0, std::vector<std::uint64_t>(sources_, 0)});
  }
  if (at == seats_.end()) {
    at = std::find_if(seats_.begin(), seats_.end(),
                      [](const Seat& seat) { return seat.steps == 0; });
    if (at != seats_.end()) {
      at->client = client;
      std::fill(at->claimed.begin(), at->claimed.end(), 0);
    }
  }
  if (at == seats_.end()) at = seats_.begin() + client % kClientsMax;
  if (at->steps++ == 0) ++present_;
  return static_cast<std::uint32_t>(at - seats_.begin());
}

void ClientTurns::leave(std::uint32_t seat) {
  if (--seats_[seat].steps == 0) --present_;
}

}  // namespace kvstream
