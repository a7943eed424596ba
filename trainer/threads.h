// SPDX-License-Identifier: Apache-2.0
// How many CPU threads a rank uses, from the cores that it and its neighbours on the machine may
// run on. Launchers bind ranks in ways that nobody asked for; that is said in one line.
#pragma once

#include <string>
#include <vector>

#include "parallel/communicator.h"

namespace bdlm {

/// Where a rank may run.
struct Placement {
  std::string host;
  int online = 1;          // cores of the machine
  std::vector<int> cores;  // that this rank may run on, ascending
};
Placement own_placement();

/// Cores of `rank` divided by the ranks of its machine that may run on the same ones; at least 1.
int fair_threads(const std::vector<Placement>& ranks, std::size_t rank);

/// What is wrong with the binding of the ranks and how to mend it; empty when nothing is.
std::string binding_problem(const std::vector<Placement>& ranks);

/// Collective over the launch, to be called before any kernel. Sets OpenMP's number of threads to
/// `wanted` (run.threads), else to OMP_NUM_THREADS, else to fair_threads, and returns it. Rank 0
/// logs a binding problem.
int set_threads(int wanted, Communicator& world);

}  // namespace bdlm
