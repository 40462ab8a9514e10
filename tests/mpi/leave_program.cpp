// A program that enters MPI, meets the others and leaves; leave_test.sh runs it. Argument `N:die`
// makes rank N kill itself before the end.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "mpi_tiers/mpi_group.hpp"

int main(int argc, char** argv) {
  using namespace kvstream;
  auto session = MpiSession::open();
  if (!session) {
    std::fprintf(stderr, "%s\n", session.error().message().c_str());
    return 2;
  }
  MpiGroup::Options options;
  options.leave_timeout = kSecond;
  options.when_stuck = [] { _exit(3); };
  auto group = MpiGroup::open(*session, std::move(options));
  if (!group) {
    std::fprintf(stderr, "%s\n", group.error().message().c_str());
    return 2;
  }
  for (int i = 1; i < argc; ++i) {
    if (std::strtoul(argv[i], nullptr, 10) == (*group)->rank() &&
        std::strstr(argv[i], ":die") != nullptr) {
      raise(SIGKILL);
    }
  }
  const std::string node = (*group)->node();
  const std::uint32_t rank = (*group)->rank();
  std::printf("rank %u of %u on %s, local %u of %u, thread level %s\n", rank, (*group)->size(),
              node.c_str(), (*group)->local_rank(), (*group)->local_size(),
              (*session)->thread_level_name());
  std::fflush(stdout);
  (*group)->leave();
  const bool finalized = (*group)->departure() == MpiDeparture::kFinalized;
  std::printf("rank %u left %s\n", rank, finalized ? "finalized" : "without finalize");
  std::fflush(nullptr);
  if (!finalized) _exit(0);
  return 0;
}
