// SPDX-License-Identifier: Apache-2.0
// What the MPI files share: a group's communicator and name, the one check of return codes, and the
// clock around every call that blocks.
#pragma once

#define OMPI_SKIP_MPICXX 1  // C++ bindings that the standard has dropped
#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace bdlm {

struct MpiGroup {
  MPI_Comm comm = MPI_COMM_NULL;
  std::string name;
  int rank = 0, size = 1;
  std::vector<int> world_ranks;  // by rank of the group
  std::int64_t cut_bytes = 0;
  std::shared_ptr<Traffic> traffic;
  std::int64_t collectives = 0;  // so far
};

/// Takes over the communicator.
MpiGroup make_group(MPI_Comm comm, std::shared_ptr<Traffic> traffic, const GroupOptions& options);

/// Throws Error with the library's own text unless code is MPI_SUCCESS.
void check_mpi(int code, const char* operation, const std::string& group, int rank);
inline void check_mpi(int code, const char* operation, const MpiGroup& group) {
  check_mpi(code, operation, group.name, group.rank);
}

/// Lives while this rank is blocked: adds to wait_seconds and tells the watchdog. `ranks` (of the
/// world) are those that the call waits for.
class Blocked {
 public:
  Blocked(const MpiGroup& group, const char* operation, Purpose purpose, std::int64_t sequence,
          std::int64_t bytes, std::span<const int> ranks);
  ~Blocked();
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  Traffic& traffic_;
  Purpose purpose_;
  double begin_;
};

/// Posts the messages, cut into pieces; the group must outlive the transfer.
std::unique_ptr<Transfer> post_messages(MpiGroup& group, std::span<const Message> receives,
                                        std::span<const Message> sends, Purpose purpose);

}  // namespace bdlm
