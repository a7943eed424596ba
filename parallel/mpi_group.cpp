// SPDX-License-Identifier: Apache-2.0
// Groups of ranks, errors and waiting times of MPI calls.
#include "parallel/mpi_group.h"

#include <array>
#include <limits>
#include <numeric>

#include "kernels/error.h"
#include "parallel/watchdog.h"

namespace bdlm {
namespace {

std::vector<int> world_ranks(const MpiGroup& group) {
  std::vector<int> of_group(static_cast<std::size_t>(group.size)), of_world(of_group.size());
  std::iota(of_group.begin(), of_group.end(), 0);
  MPI_Group here = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  check_mpi(MPI_Comm_group(group.comm, &here), "MPI_Comm_group", group);
  check_mpi(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group", group);
  check_mpi(MPI_Group_translate_ranks(here, group.size, of_group.data(), world, of_world.data()),
            "MPI_Group_translate_ranks", group);
  MPI_Group_free(&here);
  MPI_Group_free(&world);
  return of_world;
}

}  // namespace

MpiGroup make_group(MPI_Comm comm, std::shared_ptr<Traffic> traffic, const GroupOptions& options) {
  require(traffic != nullptr, "group {} needs counters", options.name);
  require(options.cut_bytes >= 8 && options.cut_bytes <= std::numeric_limits<int>::max(),
          "messages of group {} are to be cut at 8 to 2^31 - 1 bytes, not at {}", options.name,
          options.cut_bytes);
  MpiGroup group{.comm = comm,
                 .name = options.name,
                 .world_ranks = {},
                 .cut_bytes = options.cut_bytes,
                 .traffic = std::move(traffic)};
  check_mpi(MPI_Comm_rank(comm, &group.rank), "MPI_Comm_rank", group);
  check_mpi(MPI_Comm_size(comm, &group.size), "MPI_Comm_size", group);
  group.world_ranks = world_ranks(group);
  return group;
}

void check_mpi(int code, const char* operation, const std::string& group, int rank) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  std::array<char, MPI_MAX_PROCESSOR_NAME> host{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  MPI_Get_processor_name(host.data(), &length);
  fail("{} failed in group {} on its rank {} ({}): {}; look for the first error of another rank",
       operation, group, rank, host.data(), text.data());
}

Blocked::Blocked(const MpiGroup& group, const char* operation, Purpose purpose,
                 std::int64_t sequence, std::int64_t bytes, std::span<const int> ranks)
    : traffic_(*group.traffic), purpose_(purpose), begin_(MPI_Wtime()) {
  if (traffic_.activity) {
    traffic_.activity->begin(operation, purpose, group.name, sequence, bytes, ranks);
  }
}

Blocked::~Blocked() {
  traffic_.at(purpose_).wait_seconds += MPI_Wtime() - begin_;
  if (traffic_.activity) traffic_.activity->end();
}

}  // namespace bdlm
