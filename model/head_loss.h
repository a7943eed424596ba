// SPDX-License-Identifier: Apache-2.0
// Final norm, head and cross-entropy over the rows that have a target. The weights are known before
// anything runs, so a chunk of logits becomes its own gradient in place and at most `chunk` rows of
// logits exist at a time: never rows x vocabulary. A tensor group shares out the vocabulary: ranks
// exchange three numbers a row instead of logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/layer_context.h"

namespace bdlm {

struct HeadTensors {
  Tensor norm, head;    // [1, D], [V', D]
  Tensor dnorm, dhead;  // their gradients, +=; empty: the loss only
  std::int64_t first = 0;  // the ids here are [first, first + V')
};

/// Targets of the rows of StepPlan::head, in its order.
struct HeadTargets {
  std::span<const std::int32_t> tokens;
  std::span<const double> weights;  // factor of each cross-entropy in the step's loss
  std::int64_t excluded = -1;       // an id that is no possible answer
};

struct HeadResult {
  Buffer nll;  // [rows, 1] cross-entropy of every row, not weighted; still on its way
  Buffer dx;   // [rows of x, D]; empty without gradients
};

/// A column [n, 1] of f64 or f32 in the host's memory; waits for it.
std::vector<double> to_host(Device& device, Tensor column);

/// x is this rank's share of the last layer's `out` output rows; rows: positions among these of the
/// rows with a target. Collective over the tensor group; every rank of it has all losses.
HeadResult head_loss(const LayerContext& c, const HeadTensors& t, Tensor x, std::int64_t out,
                     std::span<const std::int32_t> rows, const HeadTargets& targets,
                     std::int64_t chunk);

/// Logits [rows, V] of those rows of x [out, D], accumulate dtype. Not with a tensor group.
Buffer head_logits(const LayerContext& c, const HeadTensors& t, Tensor x,
                   std::span<const std::int32_t> rows);

}  // namespace bdlm
