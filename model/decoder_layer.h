// SPDX-License-Identifier: Apache-2.0
// One decoder layer: x -> x[out] + attention -> + MLP, dense or a mixture of experts. Forward and
// backward written out; what is kept in between depends on the recomputation mode, never on the loss
// or the gradients. Rows of the residual stream are this rank's share of the tensor group's.
#pragma once

#include "model/attention.h"
#include "model/mixture.h"
#include "model/recompute.h"

namespace bdlm {

struct MlpActivations {
  Buffer normed, rstd;  // [out, D] all rows, [out, 1] those here
  Buffer gate_up;       // [out, 2 F]
};

/// Everything that a layer's backward pass reads. Buffers that the mode does not keep are empty.
struct LayerActivations {
  Buffer x;  // [in, D] the layer's input: always kept
  AttentionActivations attention;
  Buffer middle;  // [out, D] residual stream between attention and MLP
  MlpActivations mlp;          // of a dense layer
  MixtureActivations mixture;  // of a sparse one
};

/// x [in, D] -> [out, D]. `saved` null: no backward pass will follow. Collective over the tensor,
/// csbp and expert groups.
Buffer layer_forward(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                     const LayerLists& lists, Buffer x, Recompute recompute,
                     LayerActivations* saved);

/// dy [out, D] -> dx [in, D]; gradients of the parameters are added to g. Consumes `saved`.
Buffer layer_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                      const LayerPlan& plan, const LayerLists& lists, Recompute recompute,
                      LayerActivations saved, Buffer dy);

}  // namespace bdlm
