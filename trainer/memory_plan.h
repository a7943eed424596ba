// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/memory_pool.h"
#include "parallel/communicator.h"
#include "trainer/step_batch.h"

namespace bdlm {

/// Bytes by kind that the training step of rank `rank` of the world asks of its device: the step is
/// run on a device that only counts, in groups that say nothing; routers choose all experts alike.
/// Exact but where an expert group's routes are not even: a rank then holds more or fewer rows.
/// Not in it: what a backend needs inside an operation (cuBLAS' workspace, partial sums: some tens of
/// MiB) and the pool's rounding (at most an eighth). batch: that of the rank.
MemoryUse plan_memory(const RunConfig& config, const StepBatch& batch, int rank);

/// "parameters 1.2 GiB, gradients ..., together at most 9.8 GiB"
std::string describe_memory(const MemoryUse& use);

/// work(), and when that is out of memory an error that also says what the plan expected.
template <class Work>
auto with_memory_plan(const RunConfig& config, const StepBatch& batch, int rank, Work work) {
  try {
    return work();
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(fmt::format("{}; bdlm plan expects of this step on this rank: {}",
                                  error.what(),
                                  describe_memory(plan_memory(config, batch, rank))));
  }
}

}  // namespace bdlm
