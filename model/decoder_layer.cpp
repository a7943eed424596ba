// SPDX-License-Identifier: Apache-2.0
#include "model/decoder_layer.h"

#include <utility>

namespace bdlm {
namespace {

/// middle = x[out] + context Wo^T
Buffer attention_residual(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                          const LayerLists& lists, Tensor x, Tensor context) {
  Buffer middle = c.residual(context.rows, x.cols);
  if (plan.out_is_in) {
    c.device.gemm_add(context, Transpose::no, w.o, Transpose::yes, x, middle);
    return middle;
  }
  c.device.gather_rows(x, lists.out.data, middle);
  c.device.gemm(context, Transpose::no, w.o, Transpose::yes, middle, Accumulate::yes);
  return middle;
}

void mlp_project(const LayerContext& c, const LayerTensors& w, Tensor middle, MlpActivations& a) {
  a.normed = c.activation(middle.rows, middle.cols);
  a.rstd = c.sum(middle.rows, 1);
  a.gate_up = c.activation(middle.rows, w.gate_up.rows);
  c.device.rms_norm_forward(middle, w.post_norm, c.config.rms_norm_eps, a.normed, a.rstd);
  c.device.gemm(a.normed, Transpose::no, w.gate_up, Transpose::yes, a.gate_up, Accumulate::no);
}

Buffer activated(const LayerContext& c, const MlpActivations& a) {
  const Tensor gate_up = a.gate_up;
  Buffer y = c.activation(gate_up.rows, gate_up.cols / 2);
  c.device.swiglu_forward(gate_up, y);
  return y;
}

/// Gradients of input w^T, where dy is of the residual stream: dw += dy^T input, dinput = dy w.
/// dinput may be input's memory.
void projection_backward(const LayerContext& c, Tensor dy, Tensor input, Tensor w, Tensor dw,
                         Tensor dinput) {
  Buffer copy;
  const Tensor operand = c.operand(dy, copy);
  c.device.gemm(operand, Transpose::yes, input, Transpose::no, dw, Accumulate::yes);
  c.device.gemm(operand, Transpose::no, w, Transpose::no, dinput, Accumulate::no);
}

/// dy [out, D] is the gradient of the layer's output and becomes that of `middle`.
void mlp_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                  Tensor middle, MlpActivations& a, Tensor dy) {
  Device& device = c.device;
  const Buffer y = activated(c, a);
  const Tensor dactivated = y;  // in y's memory
  projection_backward(c, dy, y, w.down, g.down, dactivated);
  const Tensor dgate_up = a.gate_up;
  device.swiglu_backward(a.gate_up, dactivated, dgate_up);
  device.gemm(dgate_up, Transpose::yes, a.normed, Transpose::no, g.gate_up, Accumulate::yes);
  const Tensor dnormed = a.normed;
  device.gemm(dgate_up, Transpose::no, w.gate_up, Transpose::no, dnormed, Accumulate::no);
  device.rms_norm_backward(middle, w.post_norm, a.rstd, dnormed, dy, g.post_norm);
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

  a.middle = attention_residual(c, w, plan, lists, x, a.attention.context);
  mlp_project(c, w, a.middle, a.mlp);
  Buffer y = c.residual(a.middle.tensor().rows, a.middle.tensor().cols);
  c.device.gemm_add(activated(c, a.mlp), Transpose::no, w.down, Transpose::yes, a.middle, y);

  if (saved == nullptr) return y;
  if (keep_all) {
    *saved = std::move(a);
  } else {
    saved->attention.remote = std::move(a.attention.remote);
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
    mlp_project(c, w, a.middle, a.mlp);
  }

  mlp_backward(c, w, g, a.middle, a.mlp, dy);
  const Tensor dmiddle = dy;
  Buffer dcontext = c.activation(dmiddle.rows, a.attention.context.tensor().cols);
  projection_backward(c, dmiddle, a.attention.context, w.o, g.o, dcontext);

  const Tensor x = a.x;
  Buffer dx;
  if (plan.out_is_in) {
    dx = std::move(dy);
  } else {
    dx = c.residual(x.rows, x.cols);
    c.device.zero(dx);
    c.device.scatter_add_rows(dmiddle, lists.out.data, dx);
  }
  attention_backward(c, w, g, plan, lists, x, dcontext, a.attention, dx);
  return dx;
}

}  // namespace bdlm
