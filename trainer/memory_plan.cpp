// SPDX-License-Identifier: Apache-2.0
#include "trainer/memory_plan.h"

#include "kernels/counting_device.h"
#include "parallel/silent_group.h"
#include "trainer/console.h"
#include "trainer/engine.h"

namespace bdlm {

MemoryUse plan_memory(const RunConfig& config, const StepBatch& batch, Seat seat, int rank,
                      int ranks) {
  CountingDevice device;
  SilentGroup csbp(seat.rank, seat.ranks), replicas(rank, ranks);
  const auto exchange = make_exchange(config.parallel.plan.exchange, device, csbp,
                                      config.model.config.kv_width(), config.run.dtype);
  Decoder model(device, config.model.config, decoder_options(config), *exchange, true);
  const ShardedAdamW optimizer(device, model, replicas, config.optimizer,
                               config.parallel.bucket_mib);
  device.reset_peak();
  for (const MicroStep& micro : batch.micro) model.loss_and_gradients(micro.plan, micro.input);
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
