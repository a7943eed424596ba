// SPDX-License-Identifier: Apache-2.0
// One optimizer step, in the order of the paper: count, forward and backward, reduce, clip, update.
#pragma once

#include "trainer/engine.h"

namespace bdlm {

struct StepResult {
  double loss = 0;            // what is trained: the weighted sum of the terms
  double diffusion_loss = 0;  // its terms, each divided by its normalizer
  double ar_loss = 0;
  double aux_loss = 0;        // balance of a mixture: layers' sum, mean over packed rows
  double gradient_norm = 0;  // before clipping
  bool updated = false;      // false: nothing was scored, or something was not finite
  bool finite = true;
  LossCounts counts;  // of all replicas
};

/// Gradients of the batch, summed over all ranks and at their owners, as the optimizer wants them.
/// No update. Collective over the world.
StepResult forward_backward(Engine& engine, StepBatch& batch, const Objective& objective);

/// The whole step. `update` counts updates from 1. Every rank comes to the same verdict.
StepResult train_step(Engine& engine, StepBatch& batch, const RunConfig& config, double lr,
                      std::int64_t update);

}  // namespace bdlm
