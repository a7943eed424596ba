// SPDX-License-Identifier: Apache-2.0
// One decoder layer: x -> x[out] + attention -> + MLP. Forward and backward written out; what is
// kept in between depends on the recomputation mode, never on the loss or the gradients.
#pragma once

#include "model/attention.h"
#include "model/recompute.h"

namespace bdlm {

struct MlpActivations {
  Buffer normed, rstd;  // [out, D], [out, 1]
  Buffer gate_up;       // [out, 2 F]
};

/// Everything that a layer's backward pass reads. Buffers that the mode does not keep are empty.
struct LayerActivations {
  Buffer x;  // [in, D] the layer's input: always kept
  AttentionActivations attention;
  Buffer middle;  // [out, D] residual stream between attention and MLP
  MlpActivations mlp;
};

/// x [in, D] -> [out, D]. `saved` null: no backward pass will follow. Collective over csbp.
Buffer layer_forward(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                     const LayerLists& lists, Buffer x, Recompute recompute,
                     LayerActivations* saved);

/// dy [out, D] -> dx [in, D]; gradients of the parameters are added to g. Consumes `saved`.
Buffer layer_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                      const LayerPlan& plan, const LayerLists& lists, Recompute recompute,
                      LayerActivations saved, Buffer dy);

}  // namespace bdlm
