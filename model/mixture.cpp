// SPDX-License-Identifier: Apache-2.0
#include "model/mixture.h"

#include <utility>

#include "model/balance.h"

namespace bdlm {
namespace {

/// x in the accumulate dtype, in which routers work; `copy` keeps a converted one. A tensor that the
/// model does not have stays as it is; one without rows does not: its dtype counts.
Tensor wide(const LayerContext& c, Tensor x, Buffer& copy) {
  if (x.cols == 0 || x.dtype == c.sums()) return x;
  copy = c.sum(x.rows, x.cols);
  c.device.copy(x, copy);
  return copy;
}

/// normed, and the router's logits of every row.
Buffer router_logits(const LayerContext& c, const LayerTensors& w, Tensor middle,
                     MixtureActivations& a) {
  a.normed = c.activation(middle.rows, middle.cols);
  a.rstd = c.sum(middle.rows, 1);
  c.device.rms_norm_forward(middle, w.post_norm, c.config.rms_norm_eps, a.normed, a.rstd);
  Buffer logits = c.sum(middle.rows, w.router.rows), x, router;
  c.device.gemm(wide(c, a.normed, x), Transpose::no, wide(c, w.router, router), Transpose::yes,
                logits, Accumulate::no);
  return logits;
}

void choose(const LayerContext& c, const LayerTensors& w, Tensor logits, MixtureActivations& a) {
  const Router router = c.config.router();
  Route& route = a.route;
  route.chosen.resize(static_cast<std::size_t>(logits.rows * router.chosen));
  Buffer bias;
  c.device.choose_experts(router, logits, wide(c, w.router_bias, bias), a.probabilities,
                          route.chosen);
  route.chosen_list = c.device.upload(std::span<const std::int32_t>(route.chosen));
  route.dispatch = c.experts.plan(route.chosen, router.chosen);
}

/// x[order[0]], x[order[1]], ... as one matrix.
Buffer gathered(const LayerContext& c, Tensor x, const DeviceList<std::int32_t>& order) {
  Buffer rows = c.device.allocate(order.count, x.cols, x.dtype, Memory::activations);
  c.device.gather_rows(x, order.data, rows);
  return rows;
}

void count_travel(const LayerContext& c, const Dispatch& dispatch, ExpertRows& total) {
  const ExpertRows rows = c.experts.elsewhere(dispatch);
  total.sent += rows.sent;
  total.received += rows.received;
}

/// Sends the rows with their weights to the experts, up to the activation's input.
void project(const LayerContext& c, const LayerTensors& w, MixtureActivations& a) {
  const Router router = c.config.router();
  const Dispatch& dispatch = a.route.dispatch;
  const Buffer weights = c.sum(a.normed.tensor().rows, router.chosen);
  c.device.expert_weights(router, a.probabilities, a.route.chosen_list.data, weights);
  const Tensor by_pair = weights.tensor().reshape(weights.tensor().size(), 1);
  a.rows = c.experts.send(dispatch, gathered(c, a.normed, dispatch.row_list));
  a.weights = c.experts.send(dispatch, gathered(c, by_pair, dispatch.pair_list));
  a.gate_up = c.activation(dispatch.held(), 2 * c.config.moe_intermediate_size);
  c.device.grouped_gemm(a.rows, dispatch.expert_rows, w.expert_gate_up, Transpose::yes, a.gate_up);
  if (w.gate_up.empty()) return;
  a.shared_gate_up = c.activation(a.normed.tensor().rows, w.gate_up.rows);
  c.device.gemm(a.normed, Transpose::no, w.gate_up, Transpose::yes, a.shared_gate_up,
                Accumulate::no);
}

Buffer shared_activated(const LayerContext& c, const MixtureActivations& a) {
  const Tensor gate_up = a.shared_gate_up;
  Buffer y = c.activation(gate_up.rows, gate_up.cols / 2);
  c.device.swiglu_forward(gate_up, y);
  return y;
}

}  // namespace

Buffer mixture_forward(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                       const LayerLists& lists, Tensor middle, MixtureActivations& a) {
  a.probabilities = router_logits(c, w, middle, a);
  choose(c, w, a.probabilities, a);
  if (c.balance.factor != 0) a.route.balance = add_balance(c, plan, lists, a);
  project(c, w, a);
  count_travel(c, a.route.dispatch, c.work.expert_rows);

  const Dispatch& dispatch = a.route.dispatch;
  Buffer y = c.residual(middle.rows, middle.cols);
  if (a.shared_gate_up)
    c.device.gemm_add(shared_activated(c, a), Transpose::no, w.down, Transpose::yes, middle, y);
  else
    c.device.copy(middle, y);
  const Buffer activated = c.activation(dispatch.held(), c.config.moe_intermediate_size);
  c.device.weighted_swiglu_forward(a.gate_up, a.weights, activated);
  Buffer output = c.activation(dispatch.held(), middle.cols);
  c.device.grouped_gemm(activated, dispatch.expert_rows, w.expert_down, Transpose::yes, output);
  const Buffer back = c.experts.send_back(dispatch, std::move(output));
  c.device.add_gathered_rows(back, dispatch.place_list.data, dispatch.chosen, y);
  return y;
}

void mixture_project(const LayerContext& c, const LayerTensors& w, Tensor middle,
                     MixtureActivations& a) {
  a.probabilities = router_logits(c, w, middle, a);
  c.device.router_probabilities(c.config.router(), a.probabilities, a.probabilities);
  project(c, w, a);
  count_travel(c, a.route.dispatch, c.work.expert_rows_again);
}

void mixture_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                      const LayerLists& lists, Tensor middle, MixtureActivations& a, Tensor dy) {
  Device& device = c.device;
  const Dispatch& dispatch = a.route.dispatch;
  const std::vector<std::int64_t>& groups = dispatch.expert_rows;
  Buffer copy;
  const Tensor doutput = c.operand(dy, copy);
  const Buffer dnormed = c.sum(middle.rows, middle.cols);
  device.zero(dnormed);
  if (a.shared_gate_up) {
    const Buffer y = shared_activated(c, a);
    device.gemm(doutput, Transpose::yes, y, Transpose::no, g.down, Accumulate::yes);
    device.gemm(doutput, Transpose::no, w.down, Transpose::no, y, Accumulate::no);
    device.swiglu_backward(a.shared_gate_up, y, a.shared_gate_up);
    device.gemm(a.shared_gate_up, Transpose::yes, a.normed, Transpose::no, g.gate_up,
                Accumulate::yes);
    device.gemm(a.shared_gate_up, Transpose::no, w.gate_up, Transpose::no, dnormed,
                Accumulate::yes);
  }

  // The experts.
  Buffer dpairs = c.experts.send(dispatch, gathered(c, doutput, dispatch.row_list));
  const Buffer activated = c.activation(dispatch.held(), c.config.moe_intermediate_size);
  Buffer dweights = c.sum(dispatch.held(), 1);
  device.grouped_gemm(dpairs, groups, w.expert_down, Transpose::no, activated);
  const Tensor dgate_up = a.gate_up;
  device.weighted_swiglu_backward(a.gate_up, a.weights, activated, dgate_up, dweights, activated);
  device.grouped_gemm_gradient(dpairs, activated, groups, g.expert_down);
  device.grouped_gemm_gradient(dgate_up, a.rows, groups, g.expert_gate_up);
  device.grouped_gemm(dgate_up, groups, w.expert_gate_up, Transpose::no, dpairs);

  // Back to the rows.
  const Buffer drows = c.experts.send_back(dispatch, std::move(dpairs));
  device.add_gathered_rows(drows, dispatch.place_list.data, dispatch.chosen, dnormed);
  const Buffer dchosen = gathered(c, c.experts.send_back(dispatch, std::move(dweights)),
                                  dispatch.place_list);
  const Tensor dlogits = a.probabilities;
  device.router_backward(
      c.config.router(), a.probabilities, a.route.chosen_list.data,
      dchosen.tensor().reshape(middle.rows, dispatch.chosen), a.route.balance,
      a.route.balance ? lists.packed.data : nullptr, dlogits);
  Buffer x, router;
  device.gemm(dlogits, Transpose::no, wide(c, w.router, router), Transpose::no, dnormed,
              Accumulate::yes);
  if (!c.config.freeze_router)
    device.gemm(dlogits, Transpose::yes, wide(c, a.normed, x), Transpose::no, g.router,
                Accumulate::yes);

  Buffer narrow;
  device.rms_norm_backward(middle, w.post_norm, a.rstd, c.operand(dnormed, narrow), dy,
                           g.post_norm);
  a = {};
}

}  // namespace bdlm
