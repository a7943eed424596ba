// SPDX-License-Identifier: Apache-2.0
// The balance term of a mixture (Fedus et al., Switch Transformers, arXiv 2101.03961, as Qwen3-MoE
// takes it): for every packed row and sparse layer
//     E sum_e (assignments to e / n) (sum of e's probability / n)
// over the n rows of the layer's reader set, as a mean over the step's packed rows. A mean over a
// reader set does not depend on what else is computed, nor on who computes it.
#pragma once

#include "model/mixture.h"

namespace bdlm {

/// Adds the layer's term to c.balance.sum on one of the ranks that share the packed rows, and returns
/// its gradient by the probabilities [packed rows, E]. Collective over those ranks.
Buffer add_balance(const LayerContext& c, const LayerPlan& plan, const LayerLists& lists,
                   const MixtureActivations& a);

}  // namespace bdlm
