// SPDX-License-Identifier: Apache-2.0
// Sizes and places in a mesh, and launcher mistakes, without starting MPI.
#include <catch2/catch.hpp>
#include <map>

#include "parallel/mesh.h"

using namespace bdlm;

TEST_CASE("data is what is left of the world") {
  const MeshSizes sizes = fit_mesh({.csbp = 4, .data = 99}, 12);
  CHECK(sizes.csbp == 4);
  CHECK(sizes.data == 3);
  CHECK(sizes.ranks() == 12);
  CHECK(fit_mesh({}, 1).ranks() == 1);
  const MeshSizes all = fit_mesh({.tensor = 2, .csbp = 3, .pipeline = 2, .expert = 4}, 24);
  CHECK(all.data == 2);
  CHECK(all.expert == 4);
}

TEST_CASE("a world that does not divide is refused with what would fit") {
  CHECK_THROWS_WITH(fit_mesh({.csbp = 8}, 12),
                    "12 ranks do not divide into csbp 8: start 8 or 16 ranks, or set parallel.csbp "
                    "to 6 or 12");
  CHECK_THROWS_WITH(fit_mesh({.csbp = 2}, 1),
                    "1 rank does not divide into csbp 2: start 2 ranks, or set parallel.csbp to 1");
  CHECK_THROWS_WITH(fit_mesh({.csbp = 0}, 4), "parallel.csbp is 0: it is at least 1");
  CHECK_THROWS_WITH(fit_mesh({.tensor = 2, .csbp = 4}, 12),
                    "12 ranks do not divide into tensor 2 x csbp 4: start 8 or 16 ranks, or set "
                    "parallel.tensor to 1 or 3, or parallel.csbp to 3 or 6");
  // Ranks that suit the experts too.
  CHECK_THROWS_WITH(fit_mesh({.csbp = 2, .expert = 4}, 7),
                    "7 ranks do not divide into csbp 2: start 4 or 8 ranks");
}

TEST_CASE("ranks are numbered tensor first, then csbp, data, pipeline") {
  const MeshSizes sizes{.tensor = 2, .csbp = 3, .data = 5, .pipeline = 2};
  int rank = 0;
  for (int p = 0; p < 2; ++p) {
    for (int d = 0; d < 5; ++d) {
      for (int c = 0; c < 3; ++c) {
        for (int t = 0; t < 2; ++t, ++rank) {
          const MeshPosition at = position_of(sizes, rank);
          CHECK((at.tensor == t && at.csbp == c && at.data == d && at.pipeline == p));
        }
      }
    }
  }
}

TEST_CASE("a launcher whose ranks did not find each other is noticed") {
  const auto mistake = [](int world, const std::map<std::string, const char*>& environment) {
    return launch_mistake(world, [&environment](const char* name) -> const char* {
      const auto found = environment.find(name);
      return found == environment.end() ? nullptr : found->second;
    });
  };
  CHECK(mistake(1, {}).empty());
  CHECK(mistake(4, {{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "4"}}).empty());
  CHECK(mistake(1, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}).empty());
  CHECK(mistake(1, {{"SLURM_NTASKS", "8"}}).empty());  // a batch script that starts one process
  CHECK_THAT(mistake(1, {{"OMPI_COMM_WORLD_SIZE", "4"}}), Catch::Contains("mpirun started 4"));
  CHECK_THAT(mistake(1, {{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_NTASKS", "8"}}),
             Catch::Contains("8 tasks") && Catch::Contains("srun --mpi=pmix"));
  CHECK_THAT(mistake(1, {{"PMI_SIZE", "2"}}), Catch::Contains("PMI_SIZE"));
}
