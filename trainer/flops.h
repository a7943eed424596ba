// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/config.h"
#include "parallel/plan.h"

namespace bdlm {

/// Useful FLOPs of a forward and backward pass of one rank's plan: 6 a weight and row that has a
/// reader, 12 a visible pair and query channel; of a mixture's weights those of the experts that a
/// row chose, the shared ones and the router. No recomputation, and nothing that elide leaves out.
double useful_flops(const StepPlan& plan, const ModelConfig& model);

}  // namespace bdlm
