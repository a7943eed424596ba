// SPDX-License-Identifier: Apache-2.0
// The sparse half of a decoder layer: norm, router, experts, shared experts. No token is dropped.
// It works on the rows that are here, so a tensor group has nothing to gather for it.
//
//   middle  [n, D]   residual stream of this rank's output rows
//   pairs   n k      a row and one of its experts; they travel to the expert's rank (ExpertExchange)
//   held    those that arrived here, from all ranks, by expert
//
// A pair's weight goes with it and multiplies the expert's activation before the down projection, so
// what comes back is only to be added, and the weight's gradient is known where the expert is: the
// experts' outputs are never kept nor computed again.
#pragma once

#include <vector>

#include "model/layer_context.h"
#include "model/parameters.h"

namespace bdlm {

/// The routers' choice, kept whatever is recomputed: another choice would be another function.
struct Route {
  std::vector<std::int32_t> chosen;  // [n k] experts
  DeviceList<std::int32_t> chosen_list;
  Dispatch dispatch;
  Buffer balance;  // [packed rows, E] gradient of the probabilities by the balance term
};

struct MixtureActivations {
  Route route;
  Buffer normed, rstd;          // [n, D], [n, 1]
  Buffer probabilities;         // [n, E]
  Buffer rows, weights;         // [held, D], [held, 1]
  Buffer gate_up;               // [held, 2 M]
  Buffer shared_gate_up;        // [n, 2 S]
};

/// Returns [n, D]: middle + experts + shared experts. Counts the layer's balance term in c.balance.
/// Collective over the expert group, and with a balance term over all ranks of a packed row.
Buffer mixture_forward(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                       const LayerLists& lists, Tensor middle, MixtureActivations& a);

/// With a.route of the forward pass: all that the backward pass reads, again.
void mixture_project(const LayerContext& c, const LayerTensors& w, Tensor middle,
                     MixtureActivations& a);

/// dy [n, D] is the gradient of the layer's output and becomes that of `middle`. Consumes a.
void mixture_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                      const LayerLists& lists, Tensor middle, MixtureActivations& a, Tensor dy);

}  // namespace bdlm
