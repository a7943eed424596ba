// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_layer.h"

#include <utility>

namespace bdlm {
namespace {

/// sum = addend + input w^T, where w is this rank's share of the columns: the sum over the tensor
/// group. addend and the result are this rank's share of the rows.
Buffer add_product(const LayerContext& c, Tensor input, Tensor w, Tensor addend) {
  Buffer sum = c.residual(addend.rows, addend.cols);
  if (c.scattered.alone()) {
    c.device.gemm_add(input, Transpose::no, w, Transpose::yes, addend, sum);
    return sum;
  }
  const Buffer partial = c.activation(input.rows, addend.cols);
  c.device.gemm(input, Transpose::no, w, Transpose::yes, partial, Accumulate::no);
  c.device.copy(addend, sum);
  c.scattered.reduce(partial, sum);
  return sum;
}

/// middle = x[out] + context Wo^T
Buffer attention_residual(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                          const LayerLists& lists, Tensor x, Tensor context) {
  if (plan.out_is_in) return add_product(c, context, w.o, x);
  Buffer middle = c.residual(lists.move.result, x.cols);
  c.scattered.pick(lists.move, lists.held, x, middle);
  if (c.scattered.alone()) {
    c.device.gemm(context, Transpose::no, w.o, Transpose::yes, middle, Accumulate::yes);
    return middle;
  }
  return add_product(c, context, w.o, middle);
}

void mlp_project(const LayerContext& c, const LayerTensors& w, std::int64_t out, Tensor middle,
                 MlpActivations& a) {
  a.rstd = c.sum(middle.rows, 1);
  a.normed = c.norm_rows(middle, out, w.post_norm, a.rstd);
  a.gate_up = c.activation(out, w.gate_up.rows);
  c.device.gemm(a.normed, Transpose::no, w.gate_up, Transpose::yes, a.gate_up, Accumulate::no);
}

Buffer activated(const LayerContext& c, const MlpActivations& a) {
  const Tensor gate_up = a.gate_up;
  Buffer y = c.activation(gate_up.rows, gate_up.cols / 2);
  c.device.swiglu_forward(gate_up, y);
  return y;
}

/// Gradients of input w^T, where dy is all rows of the output's: dw += dy^T input, dinput = dy w.
/// dinput may be input's memory.
void projection_backward(const LayerContext& c, Tensor dy, Tensor input, Tensor w, Tensor dw,
                         Tensor dinput) {
  c.device.gemm(dy, Transpose::yes, input, Transpose::no, dw, Accumulate::yes);
  c.device.gemm(dy, Transpose::no, w, Transpose::no, dinput, Accumulate::no);
}

/// dy [out, D] is the gradient of the layer's output and becomes that of `middle`.
void mlp_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                  std::int64_t out, Tensor middle, MlpActivations& a, Tensor dy) {
  Device& device = c.device;
  const Buffer y = activated(c, a);
  const Tensor dactivated = y;  // in y's memory
  {
    Buffer copy;
    projection_backward(c, c.all_rows(dy, out, copy), y, w.down, g.down, dactivated);
  }
  const Tensor dgate_up = a.gate_up;
  device.swiglu_backward(a.gate_up, dactivated, dgate_up);
  device.gemm(dgate_up, Transpose::yes, a.normed, Transpose::no, g.gate_up, Accumulate::yes);
  const Tensor dnormed = a.normed;
  device.gemm(dgate_up, Transpose::no, w.gate_up, Transpose::no, dnormed, Accumulate::no);
  c.norm_rows_backward(middle, w.post_norm, a.rstd, dnormed, dy, g.post_norm);
  a = {};
}

}  // namespace

Buffer layer_forward(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                     const LayerLists& lists, Buffer x, Recompute recompute,
                     LayerActivations* saved) {
  const bool keep_all = saved != nullptr && recompute == Recompute::none;
  LayerActivations a;
  attention_project(c, w, plan, lists, x, keep_all, Purpose::exchange_forward, a.attention);
  attention_attend(c, plan, lists, a.attention);
  if (saved != nullptr && c.keep_remote_kv) a.attention.remote = c.exchange.keep();

  const auto out = static_cast<std::int64_t>(plan.out.size());
  const bool sparse = !w.router.empty();
  a.middle = attention_residual(c, w, plan, lists, x, a.attention.context);
  Buffer y;
  if (sparse) {
    y = mixture_forward(c, w, plan, lists, a.middle, a.mixture);
  } else {
    mlp_project(c, w, out, a.middle, a.mlp);
    y = add_product(c, activated(c, a.mlp), w.down, a.middle);
  }

  if (saved == nullptr) return y;
  if (keep_all) {
    *saved = std::move(a);
  } else {
    saved->attention.remote = std::move(a.attention.remote);
    saved->mixture.route = std::move(a.mixture.route);
    if (recompute == Recompute::selective) {
      saved->attention.context = std::move(a.attention.context);
      saved->attention.lse = std::move(a.attention.lse);
    }
  }
  saved->x = std::move(x);
  return y;
}

Buffer layer_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                      const LayerPlan& plan, const LayerLists& lists, Recompute recompute,
                      LayerActivations saved, Buffer dy) {
  LayerActivations& a = saved;
  const auto out = static_cast<std::int64_t>(plan.out.size());
  const bool sparse = !w.router.empty();
  // Keys and values of others that were not kept travel again, while the MLP is done.
  const bool kept = a.attention.remote.has_value();
  const auto again = kept ? std::nullopt : std::optional(Purpose::exchange_recompute);
  if (recompute != Recompute::none)
    attention_project(c, w, plan, lists, a.x, true, again, a.attention);
  else if (again)
    c.exchange.begin(plan, a.attention.kv, *again);
  if (recompute == Recompute::full) {
    if (kept) c.exchange.resume(plan, std::move(*a.attention.remote));
    attention_attend(c, plan, lists, a.attention);
    if (c.exchange.keeps())
      a.attention.remote = c.exchange.keep();
    else
      c.exchange.begin(plan, a.attention.kv, Purpose::exchange_recompute);
  }
  if (recompute != Recompute::none) {
    a.middle = attention_residual(c, w, plan, lists, a.x, a.attention.context);
    if (sparse)
      mixture_project(c, w, a.middle, a.mixture);
    else
      mlp_project(c, w, out, a.middle, a.mlp);
  }

  if (sparse)
    mixture_backward(c, w, g, lists, a.middle, a.mixture, dy);
  else
    mlp_backward(c, w, g, out, a.middle, a.mlp, dy);
  const Tensor dmiddle = dy;
  Buffer dcontext = c.activation(out, a.attention.context.tensor().cols);
  {
    Buffer copy;
    projection_backward(c, c.all_rows(dmiddle, out, copy), a.attention.context, w.o, g.o, dcontext);
  }

  const Tensor x = a.x;
  Buffer dx;
  if (plan.out_is_in) {
    dx = std::move(dy);
  } else {
    dx = c.residual(x.rows, x.cols);
    c.device.zero(dx);
    c.scattered.pick_backward(lists.move, lists.held, dmiddle, dx);
  }
  attention_backward(c, w, g, plan, lists, x, dcontext, a.attention, dx);
  return dx;
}

}  // namespace bdlm
