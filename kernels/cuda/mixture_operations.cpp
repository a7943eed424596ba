// SPDX-License-Identifier: Apache-2.0
// What a mixture of experts needs: products of groups, its gated unit, the router.
#include <bit>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/tensor_view.h"

namespace bdlm::cuda {
namespace {

/// Groups have another number of rows in every micro-batch, and to choose an algorithm takes longer
/// than to enqueue a product.
std::int64_t rounded(std::int64_t rows) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(rows)));
}

}  // namespace

void CudaDevice::grouped_gemm(Tensor a, std::span<const std::int64_t> rows, Tensor w,
                              Transpose trans_w, Tensor c) {
  const std::int64_t each = check_grouped_gemm(a, rows, w, trans_w, c);
  if (c.empty()) return;
  if (a.cols == 0) return zero(c);
  if (products_->multiply_groups(a, rows, w, trans_w, c)) return;
  std::int64_t first = 0, group = 0;
  for (const std::int64_t count : rows) {
    if (count > 0) {
      products_->multiply(a.slice_rows(first, count), Transpose::no,
                          w.slice_rows(each * group, each), trans_w, Tensor{},
                          c.slice_rows(first, count), {count, c.cols, a.cols},
                          {rounded(count), c.cols, a.cols});
    }
    first += count;
    ++group;
  }
}

void CudaDevice::grouped_gemm_gradient(Tensor dy, Tensor x, std::span<const std::int64_t> rows,
                                       Tensor dw) {
  const std::int64_t each = check_grouped_gemm_gradient(dy, x, rows, dw);
  if (dw.empty()) return;
  std::int64_t first = 0, group = 0;
  for (const std::int64_t count : rows) {
    if (count > 0) {
      const Tensor sum = dw.slice_rows(each * group, each);
      products_->multiply(dy.slice_rows(first, count), Transpose::yes, x.slice_rows(first, count),
                          Transpose::no, sum, sum, {dy.cols, x.cols, count},
                          {dy.cols, x.cols, rounded(count)});
    }
    first += count;
    ++group;
  }
}

void CudaDevice::weighted_swiglu_forward(Tensor gate_up, Tensor weight, Tensor y) {
  check_weighted_swiglu(gate_up, weight, y);
  if (y.empty()) return;
  dispatch(y.dtype, [&]<class T>() {
    cuda::swiglu_forward<T>(stream_, view<const T>(gate_up), view<const sum_t<T>>(weight),
                            view<T>(y));
  });
}

void CudaDevice::weighted_swiglu_backward(Tensor gate_up, Tensor weight, Tensor dy,
                                          Tensor dgate_up, Tensor dweight, Tensor y) {
  check_weighted_swiglu_gradient(gate_up, weight, dy, dgate_up, dweight, y);
  if (dy.rows == 0) return;
  if (dy.cols == 0) return zero(dweight);
  dispatch(dy.dtype, [&]<class T>() {
    using A = sum_t<T>;
    cuda::weighted_swiglu_backward<T>(stream_, view<const T>(gate_up), view<const A>(weight),
                                      view<const T>(dy), view<T>(dgate_up), view<A>(dweight),
                                      view<T>(y));
  });
}

void CudaDevice::choose_experts(const Router& router, Tensor logits, Tensor bias,
                                Tensor probabilities, std::span<std::int32_t> chosen) {
  check_choose_experts(router, logits, bias, probabilities, chosen);
  if (logits.empty()) return;
  // Four bytes an element, like the expert numbers that lie in it.
  const Buffer list = scratch(logits.rows, router.chosen, DType::f32);
  auto* const experts = static_cast<std::int32_t*>(list.tensor().data);
  dispatch_sums(logits.dtype, [&]<class A>() {
    cuda::choose_experts<A>(stream_, router, view<const A>(logits),
                            bias.empty() ? nullptr : view<const A>(bias).data,
                            view<A>(probabilities), experts);
  });
  fetch(experts, chosen.data(), chosen.size_bytes());
}

void CudaDevice::router_probabilities(const Router& router, Tensor logits, Tensor probabilities) {
  check_router_probabilities(router, logits, probabilities);
  if (logits.empty()) return;
  dispatch_sums(logits.dtype, [&]<class A>() {
    cuda::choose_experts<A>(stream_, router, view<const A>(logits), nullptr,
                            view<A>(probabilities), nullptr);
  });
}

void CudaDevice::expert_weights(const Router& router, Tensor probabilities,
                                const std::int32_t* chosen, Tensor weights) {
  check_expert_weights(router, probabilities, weights);
  if (weights.empty()) return;
  dispatch_sums(weights.dtype, [&]<class A>() {
    cuda::expert_weights<A>(stream_, router, view<const A>(probabilities), chosen,
                            view<A>(weights));
  });
}

void CudaDevice::balance_sums(const Router& router, Tensor probabilities,
                              const std::int32_t* chosen, const std::int32_t* packed,
                              Tensor sums) {
  check_balance_sums(router, probabilities, sums);
  if (probabilities.empty() || sums.empty()) return;
  const Buffer partial = scratch(sums.rows * balance_slices(probabilities.rows),
                                 2 * router.experts, sums.dtype);
  dispatch_sums(sums.dtype, [&]<class A>() {
    cuda::balance_sums<A>(stream_, router, view<const A>(probabilities), chosen, packed,
                          view<A>(partial), view<A>(sums));
  });
}

void CudaDevice::router_backward(const Router& router, Tensor probabilities,
                                 const std::int32_t* chosen, Tensor dweights, Tensor balance,
                                 const std::int32_t* packed, Tensor dlogits) {
  check_router_gradient(router, probabilities, dweights, balance, packed, dlogits);
  if (dlogits.empty()) return;
  dispatch_sums(dlogits.dtype, [&]<class A>() {
    cuda::router_backward<A>(stream_, router, view<const A>(probabilities), chosen,
                             view<const A>(dweights),
                             balance.empty() ? View<const A>{} : view<const A>(balance), packed,
                             view<A>(dlogits));
  });
}

}  // namespace bdlm::cuda
