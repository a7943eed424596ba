// SPDX-License-Identifier: Apache-2.0
#include "trainer/memory_plan.h"

#include "kernels/counting_device.h"
#include "trainer/console.h"
#include "trainer/engine.h"
#include "trainer/model_placement.h"

namespace bdlm {

MemoryUse plan_memory(const RunConfig& config, const StepBatch& batch, int rank) {
  CountingDevice device;
  Mesh mesh = Mesh::silent(config.parallel.mesh, rank, key_copies(config));
  Engine engine(config, device, mesh, Mode::train);
  device.reset_peak();
  StepBatch used = batch;
  engine.run(used, {.balance = config.objective.router_aux_loss_coef}, true);
  return device.memory();
}

std::string describe_memory(const MemoryUse& use) {
  std::string text;
  for (std::size_t k = 0; k < memory_kinds; ++k)
    if (use.peak_by_kind[k] > 0)
      text += fmt::format("{} {}, ", name_of(static_cast<Memory>(k)),
                          bytes_text(static_cast<double>(use.peak_by_kind[k])));
  return text + "together at most " + bytes_text(static_cast<double>(use.peak));
}

}  // namespace bdlm
