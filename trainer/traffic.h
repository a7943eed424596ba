// SPDX-License-Identifier: Apache-2.0
// What a step will send and receive, from its plans alone. Held against the communicators' counters
// by `bdlm parity` and the tests: equal to the byte, for every purpose but control.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/zero.h"
#include "trainer/run_config.h"
#include "trainer/step_batch.h"

namespace bdlm {

/// Counters at zero whose communicators also tell a Watchdog what they wait in.
std::shared_ptr<Traffic> watched_traffic();

/// Whether the layers keep what others have sent for the backward pass (parallel.keep_remote_kv).
bool keeps_remote_kv(const RunConfig& config);

/// Passes of a layer's keys and values: in the forward and again for the backward.
struct ExchangePasses {
  std::int64_t forward = 1, again = 0, gradient = 1;
};
ExchangePasses exchange_passes(const RunConfig& config, Recompute layer);

/// Bytes of this rank for one step: forward and backward of the batch, the reduction of gradients,
/// and, if it updates, the gathering of parameters.
Traffic plan_traffic(const StepBatch& batch, const RunConfig& config, const ShardLayout& shards,
                     Seat seat, int replica_rank, bool update);

}  // namespace bdlm
