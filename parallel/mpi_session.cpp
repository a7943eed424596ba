// SPDX-License-Identifier: Apache-2.0
// Start and end of MPI, and the launcher mistakes that would otherwise train N times the same run.
#include <spdlog/spdlog.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "kernels/error.h"
#include "parallel/mpi_group.h"

namespace bdlm {
namespace {

/// A number above one in an environment variable, else 0.
int several(const std::function<const char*(const char*)>& variable, const char* name) {
  const char* text = variable(name);
  const int value = text == nullptr ? 0 : std::atoi(text);
  return value > 1 ? value : 0;
}

}  // namespace

std::string launch_mistake(int world, const std::function<const char*(const char*)>& variable) {
  if (world != 1) return {};
  // mpirun -n 1 inside an allocation of many tasks is no mistake: its own variable decides.
  if (variable("OMPI_COMM_WORLD_SIZE") != nullptr) {
    const int ranks = several(variable, "OMPI_COMM_WORLD_SIZE");
    if (ranks == 0) return {};
    return fmt::format(
        "mpirun started {} ranks (OMPI_COMM_WORLD_SIZE) but this process is alone: bdlm is linked "
        "to another MPI than that mpirun belongs to; use the mpirun of the MPI that 'bdlm doctor' "
        "names",
        ranks);
  }
  if (const int ranks = several(variable, "PMI_SIZE")) {
    return fmt::format(
        "the launcher started {} ranks (PMI_SIZE) but this process is alone: launch with Open "
        "MPI's own mpirun, or with srun --mpi=pmix",
        ranks);
  }
  // Set by srun for its tasks only. SLURM_NTASKS is also there in a batch script, where one process
  // may well be meant.
  if (const int ranks = several(variable, "SLURM_STEP_NUM_TASKS")) {
    return fmt::format(
        "srun started {} tasks but they did not find each other (each would run alone): use srun "
        "--mpi=pmix, or mpirun",
        ranks);
  }
  return {};
}

MpiSession::MpiSession(int& argc, char**& argv) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) {
    int provided = 0;
    // Without a launcher Open MPI would start a daemon beside this process: slow, and one more to
    // fail. Not overwritten where somebody has set it.
    ::setenv("OMPI_MCA_ess_singleton_isolated", "1", 0);
    check_mpi(MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread",
              "world", 0);
    owner_ = true;
    require(provided >= MPI_THREAD_FUNNELED,
            "this MPI library was built without thread support (MPI_THREAD_FUNNELED), which bdlm "
            "needs: use another build of it");
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);  // inherited by every communicator
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank", "world", 0);
  check_mpi(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size", "world", rank_);
  const std::string mistake =
      launch_mistake(size_, [](const char* name) -> const char* { return std::getenv(name); });
  require(mistake.empty(), "{}", mistake);

  local_size_ = mpi_locality().size;
}

Locality mpi_locality() {
  Locality here;
  MPI_Comm local = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &local),
            "MPI_Comm_split_type", "world", 0);
  check_mpi(MPI_Comm_rank(local, &here.rank), "MPI_Comm_rank", "local", 0);
  check_mpi(MPI_Comm_size(local, &here.size), "MPI_Comm_size", "local", 0);
  int world_rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank", "world", 0);
  check_mpi(MPI_Allreduce(&world_rank, &here.node, 1, MPI_INT, MPI_MIN, local), "MPI_Allreduce",
            "local", 0);
  check_mpi(MPI_Comm_free(&local), "MPI_Comm_free", "local", 0);
  std::array<char, MPI_MAX_PROCESSOR_NAME> name{};
  int length = 0;
  check_mpi(MPI_Get_processor_name(name.data(), &length), "MPI_Get_processor_name", "world", 0);
  here.host.assign(name.data(), static_cast<std::size_t>(length));
  return here;
}

MpiSession::~MpiSession() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (!owner_ || finalized != 0 || std::uncaught_exceptions() > 0) return;
  MPI_Finalize();
}

void MpiSession::abort(int status) {
  spdlog::default_logger()->flush();
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, status);
  std::_Exit(status);
}

}  // namespace bdlm
