// SPDX-License-Identifier: Apache-2.0
// What the plan says a step sends and receives, by purpose; to be equal to what communicators count.
#pragma once

#include <cstdint>
#include <memory>

#include "parallel/communicator.h"
#include "parallel/expert_exchange.h"
#include "trainer/run_config.h"
#include "trainer/step_batch.h"

namespace bdlm {

/// Counters that a Watchdog can read.
std::shared_ptr<Traffic> watched_traffic();

/// Whether other ranks' keys and values are kept for the backward pass. `auto`: where no layer
/// recomputes anything.
bool keeps_remote_kv(const RunConfig& config);

/// Passes over a layer's keys and values in a step.
struct ExchangePasses {
  int forward = 1, again = 0, gradient = 1;
};
ExchangePasses exchange_passes(const RunConfig& config, Recompute layer);

/// (row, choice) pairs that a rank's routers have sent to other ranks' experts and got from them, in
/// forward passes, and in those of them that are recomputed. What they choose is in no plan.
struct RoutedRows {
  ExpertRows forward, again;
};
/// Of routers that choose all experts alike: about what a step of `batch` will send.
RoutedRows uniform_routes(const StepBatch& batch, const RunConfig& config, int rank);

/// Bytes of one training step of rank `rank` of the world. `update`: with the parameters' way back
/// after the optimizer.
Traffic plan_traffic(const StepBatch& batch, const RunConfig& config, int rank,
                     const RoutedRows& routed, bool update);

}  // namespace bdlm
