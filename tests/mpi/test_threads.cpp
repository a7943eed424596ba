// SPDX-License-Identifier: Apache-2.0
// Threads of a rank: what is asked for wins.
#include <omp.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "trainer/threads.h"

using namespace bdlm;

TEST_CASE("threads: the run file, then the environment, then a fair share", "[test_threads]") {
  const auto world = mpi_world(std::make_shared<Traffic>());
  ::setenv("OMP_NUM_THREADS", "2,1", 1);
  CHECK(set_threads(3, *world) == 3);
  CHECK(omp_get_max_threads() == 3);
  CHECK(set_threads(0, *world) == 2);
  ::unsetenv("OMP_NUM_THREADS");
  const int fair = set_threads(0, *world);
  CHECK(fair >= 1);
  CHECK(fair <= static_cast<int>(own_placement().cores.size()));
  CHECK(omp_get_max_threads() == fair);
}
