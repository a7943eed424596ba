// SPDX-License-Identifier: Apache-2.0
// Biases, embedding, norms, rotary embedding, SwiGLU: checks, types, and scratch for reductions.
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/tensor_view.h"

namespace bdlm::cuda {
namespace {

/// Rows of partial sums that a reduction over `rows` is worth: a block has a few rows at least.
std::int64_t partial_rows(std::int64_t rows) {
  constexpr std::int64_t rows_each = 16;
  return std::clamp<std::int64_t>((rows + rows_each - 1) / rows_each, 1, most_partials);
}

}  // namespace

void CudaDevice::add_bias(Tensor bias, Tensor y) {
  check_bias(bias, y);
  if (y.empty()) return;
  dispatch(y.dtype, [&]<class T>() {
    cuda::add_bias<T>(stream_, view<const T>(bias), view<T>(y));
  });
}

void CudaDevice::bias_gradient(Tensor dy, Tensor dbias) {
  check_bias_gradient(dy, dbias);
  if (dy.empty()) return;
  const Buffer partial = scratch(partial_rows(dy.rows), dy.cols, dbias.dtype);
  dispatch(dy.dtype, [&]<class T>() {
    cuda::bias_gradient<T>(stream_, view<const T>(dy), view<sum_t<T>>(partial),
                           view<sum_t<T>>(dbias));
  });
}

void CudaDevice::embedding_forward(const std::int32_t* ids, Tensor table, Tensor y) {
  check_embedding(table, y);
  gather_rows(table, ids, y);
}

void CudaDevice::embedding_backward(std::span<const std::int32_t> ids, Tensor dy, Tensor dtable) {
  check_embedding_gradient(ids, dy, dtable);
  if (dy.empty()) return;
  // Rows sorted by id, those of one id in their order: a block adds up one id, without atomics.
  std::vector<std::int32_t> order(ids.size()), group;
  std::iota(order.begin(), order.end(), 0);
  const auto id_of = [&](std::int32_t i) { return ids[static_cast<std::size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return id_of(a) < id_of(b); });
  for (std::size_t i = 0; i < order.size(); ++i)
    if (i == 0 || id_of(order[i]) != id_of(order[i - 1])) group.push_back(static_cast<std::int32_t>(i));
  const auto groups = static_cast<std::int64_t>(group.size());
  group.push_back(static_cast<std::int32_t>(order.size()));
  const auto device_ids = upload(ids);
  const auto device_order = upload(std::span<const std::int32_t>(order));
  const auto device_group = upload(std::span<const std::int32_t>(group));
  dispatch(dy.dtype, [&]<class T>() {
    cuda::embedding_backward<T>(stream_, device_ids.data, device_order.data, device_group.data,
                                groups, view<const T>(dy), view<sum_t<T>>(dtable));
  });
}

void CudaDevice::rms_norm_forward(Tensor x, Tensor weight, double eps, Tensor y, Tensor rstd) {
  check_rms_norm(x, weight, y, rstd);
  if (x.empty()) return;
  dispatch_with_sums(weight.dtype, x.dtype, [&]<class T, class X>() {
    cuda::rms_norm_forward<T, X>(stream_, view<const X>(x), view<const T>(weight), eps, view<T>(y),
                                 view<sum_t<T>>(rstd));
  });
}

void CudaDevice::rms_norm_backward(Tensor x, Tensor weight, Tensor rstd, Tensor dy, Tensor dx,
                                   Tensor dweight) {
  check_rms_norm_gradient(x, weight, rstd, dy, dx, dweight);
  if (x.empty()) return;
  const Buffer partial = scratch(partial_rows(x.rows), x.cols, dweight.dtype);
  dispatch_with_sums(weight.dtype, x.dtype, [&]<class T, class X>() {
    using A = sum_t<T>;
    cuda::rms_norm_backward<T, X>(stream_, view<const X>(x), view<const T>(weight),
                                  view<const A>(rstd), view<const T>(dy), view<X>(dx),
                                  view<A>(partial), view<A>(dweight));
  });
}

namespace {

/// Kernels take "no norm" and "no temperature" from the pointer.
template <class T>
const T* data_or_null(const Tensor& x) {
  return x.empty() ? nullptr : view<const T>(x).data;
}

template <class T>
HeadRotaryArgs<T> rotary_args(const HeadRotary& args) {
  using A = sum_t<T>;
  return {args.heads,
          args.head_dim,
          data_or_null<T>(args.norm_weight),
          args.norm_eps,
          args.positions,
          view<const A>(args.table.cos),
          view<const A>(args.table.sin),
          data_or_null<A>(args.table.temperature)};
}

}  // namespace

void CudaDevice::head_rotary_forward(const HeadRotary& args, Tensor x, Tensor y, Tensor rstd) {
  check_head_rotary(args, x, y, rstd);
  if (x.empty()) return;
  dispatch(x.dtype, [&]<class T>() {
    cuda::head_rotary_forward<T>(stream_, rotary_args<T>(args), view<const T>(x), view<T>(y),
                                 args.norm_weight.empty() ? View<sum_t<T>>{}
                                                          : view<sum_t<T>>(rstd));
  });
}

void CudaDevice::head_rotary_backward(const HeadRotary& args, Tensor x, Tensor rstd, Tensor dy,
                                      Tensor dx, Tensor dweight) {
  check_head_rotary_gradient(args, x, rstd, dy, dx, dweight);
  if (dx.empty()) return;
  const bool norm = !args.norm_weight.empty();
  const DType sum = accumulate_type(dx.dtype);
  const Buffer partial = norm ? scratch(partial_rows(dx.rows), args.head_dim, sum) : Buffer();
  dispatch(dx.dtype, [&]<class T>() {
    using A = sum_t<T>;
    const auto run = [&]<class D>() {
      cuda::head_rotary_backward<T, D>(
          stream_, rotary_args<T>(args), norm ? view<const T>(x) : View<const T>{},
          norm ? view<const A>(rstd) : View<const A>{}, view<const D>(dy), view<T>(dx),
          view<A>(partial), norm ? view<A>(dweight) : View<A>{});
    };
    if (dy.dtype == dx.dtype)
      run.template operator()<T>();
    else
      run.template operator()<A>();
  });
}

void CudaDevice::swiglu_forward(Tensor gate_up, Tensor y) {
  check_swiglu(gate_up, y);
  if (y.empty()) return;
  dispatch(y.dtype, [&]<class T>() {
    cuda::swiglu_forward<T>(stream_, view<const T>(gate_up), {}, view<T>(y));
  });
}

void CudaDevice::swiglu_backward(Tensor gate_up, Tensor dy, Tensor dgate_up) {
  check_swiglu_gradient(gate_up, dy, dgate_up);
  if (dy.empty()) return;
  dispatch(dy.dtype, [&]<class T>() {
    cuda::swiglu_backward<T>(stream_, view<const T>(gate_up), view<const T>(dy),
                             view<T>(dgate_up));
  });
}

}  // namespace bdlm::cuda
