// What both twins can do without MPI.
#include <cstdlib>

#include "launch/bootstrap.hpp"
#include "ranks/file_group.hpp"
#include "ranks/solo_group.hpp"

namespace kvstream {
namespace {

constexpr std::string_view kFilePrefix = "file:";

class PlainBootstrap final : public Bootstrap {
 public:
  explicit PlainBootstrap(std::unique_ptr<Group> group) : group_(std::move(group)) {}
  Group& group() override { return *group_; }
  TierKinds kinds() const override { return tier_kinds(); }
  bool leave() override {
    group_->leave();
    return false;
  }

 private:
  std::unique_ptr<Group> group_;
};

/// Open MPI's variables first: inside an mpirun those of Slurm describe its daemon.
std::uint32_t launched(const char* open_mpi, const char* slurm, std::uint32_t otherwise) {
  for (const char* name : {open_mpi, slurm}) {
    const char* text = std::getenv(name);
    if (text != nullptr && *text != '\0') {
      return static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
    }
  }
  return otherwise;
}

}  // namespace

std::uint32_t launcher_rank() { return launched("OMPI_COMM_WORLD_RANK", "SLURM_PROCID", 0); }

Result<std::unique_ptr<Bootstrap>> open_plain_bootstrap(const std::string& how,
                                                        const std::string& node) {
  if (how == "solo") {
    return std::unique_ptr<Bootstrap>(
        std::make_unique<PlainBootstrap>(std::make_unique<SoloGroup>(node)));
  }
  if (how.starts_with(kFilePrefix) && how.size() > kFilePrefix.size()) {
    FileGroup::Options options;
    options.directory = how.substr(kFilePrefix.size());
    options.rank = launcher_rank();
    options.size = launched("OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS", 1);
    options.node = node;
    auto group = FileGroup::open(std::move(options));
    if (!group) return failure(group.error());
    return std::unique_ptr<Bootstrap>(std::make_unique<PlainBootstrap>(std::move(*group)));
  }
  return failure(Code::kInvalidArgument,
                 "bootstrap = \"" + how + "\" is none of auto, mpi, solo, file:DIR");
}

}  // namespace kvstream
