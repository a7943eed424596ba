// SPDX-License-Identifier: Apache-2.0
// The attention half of a decoder layer: norm, projections, rotary, exchange of keys and values,
// interval attention. The output projection and the residual belong to the decoder layer.
//
// Sizes are those of this rank: H and K count its heads, x its share of the input rows.
//
//   x        [in, D]     residual stream of the plan's input rows
//   query    [out, H d]  after QK-norm and rotary, for the output rows only
//   kv       [in, 2 K d] keys after QK-norm and rotary, then values
//   context  [out, H d]  attention's output
#pragma once

#include <optional>

#include "model/layer_context.h"
#include "model/parameters.h"

namespace bdlm {

struct AttentionActivations {
  Buffer normed, rstd;             // [in, D], [in, 1]
  Buffer query, kv;                // see above
  Buffer query_raw, key_raw;       // before QK-norm; only with QK-norm and for a backward pass
  Buffer query_rstd, key_rstd;     // [out, H], [in, K] with QK-norm
  Buffer context, lse;             // [out, H d], [out, H]
  std::optional<KeptShards> remote;  // other ranks' kv, when it is kept
};

/// x -> normed, query, kv. `send`: the exchange of kv begins as soon as the rows that others read
/// are there, so that it travels while the rest is computed. Collective over the csbp group then.
void attention_project(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                       const LayerLists& lists, Tensor x, bool for_backward,
                       std::optional<Purpose> send, AttentionActivations& a);

/// query, kv and the shards of the exchange that has begun -> context, lse.
void attention_attend(const LayerContext& c, const LayerPlan& plan, const LayerLists& lists,
                      AttentionActivations& a);

/// dcontext -> dx (+=) [in, D] and the gradients g (+=). Needs all activations, and either the kept
/// shards in a.remote or an exchange that has begun; consumes a.
void attention_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                        const LayerPlan& plan, const LayerLists& lists, Tensor x, Tensor dcontext,
                        AttentionActivations& a, Tensor dx);

}  // namespace bdlm
