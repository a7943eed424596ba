// SPDX-License-Identifier: Apache-2.0
// The gated unit of the MLP, silu(gate) * up (Shazeer, arXiv 2002.05202).
#include <cmath>

#include "kernels/cuda/cover.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {
namespace {

constexpr int pieces = 2;

template <class T, int N>
__global__ void __launch_bounds__(cover_threads)
    forward(Cover<N, pieces> cover, View<const T> gate_up, View<const sum_t<T>> weight, View<T> y) {
  using A = sum_t<T>;
  const std::int64_t row = cover.row();
  if (row >= y.rows) return;
  const T* gate = gate_up.data + row * gate_up.stride;
  const T* up = gate + y.cols;
  const A w = weight.data != nullptr ? weight.data[row * weight.stride] : A(1);
  Vector<T, N> gates[pieces], ups[pieces];
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    const std::int64_t col = cover.col(p);
    if (col >= y.cols) continue;
    gates[p] = load_vector<N>(gate + col);
    ups[p] = load_vector<N>(up + col);
  }
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    const std::int64_t col = cover.col(p);
    if (col >= y.cols) continue;
    Vector<T, N> out;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A g = load(gates[p].at[k]);
      store(out.at[k], g / (A(1) + std::exp(-g)) * load(ups[p].at[k]) * w);
    }
    store_vector<N>(y.data + row * y.stride + col, out);
  }
}

/// dgate_up may be gate_up: a thread writes what only it has read.
template <class T, int N>
__global__ void __launch_bounds__(cover_threads)
    backward(Cover<N, pieces> cover, View<const T> gate_up, View<const T> dy, View<T> dgate_up) {
  using A = sum_t<T>;
  const std::int64_t row = cover.row();
  if (row >= dy.rows) return;
  const T* gate = gate_up.data + row * gate_up.stride;
  const T* up = gate + dy.cols;
  const T* grad = dy.data + row * dy.stride;
  T* out = dgate_up.data + row * dgate_up.stride;
  Vector<T, N> gates[pieces], ups[pieces], grads[pieces];
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    const std::int64_t col = cover.col(p);
    if (col >= dy.cols) continue;
    gates[p] = load_vector<N>(gate + col);
    ups[p] = load_vector<N>(up + col);
    grads[p] = load_vector<N>(grad + col);
  }
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    const std::int64_t col = cover.col(p);
    if (col >= dy.cols) continue;
    Vector<T, N> dgate, dup;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const A g = load(gates[p].at[k]), u = load(ups[p].at[k]), d = load(grads[p].at[k]);
      const A sigmoid = A(1) / (A(1) + std::exp(-g));
      store(dgate.at[k], d * u * sigmoid * (A(1) + g * (A(1) - sigmoid)));
      store(dup.at[k], d * g * sigmoid);
    }
    store_vector<N>(out + col, dgate);
    store_vector<N>(out + dy.cols + col, dup);
  }
}

/// gate_up as two matrices side by side: both must fit.
template <int N, class T>
bool halves_fit(const View<T>& x, std::int64_t half) {
  return fits<N>(View<T>{x.data, x.rows, half, x.stride}) && fits<N>(x);
}

}  // namespace

template <class T>
void swiglu_forward(Stream stream, View<const T> gate_up, View<const sum_t<T>> weight, View<T> y) {
  if (y.rows == 0 || y.cols == 0) return;
  const auto run = [&]<int N>() {
    const CoverShape shape = cover<N, pieces>(y.rows, y.cols);
    launch("swiglu_forward", forward<T, N>, {shape.grid, shape.block, 0, stream},
           Cover<N, pieces>{shape.across}, gate_up, weight, y);
  };
  constexpr int wide = vector_width<T>();
  if (halves_fit<wide>(gate_up, y.cols) && fits<wide>(y)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

template <class T>
void swiglu_backward(Stream stream, View<const T> gate_up, View<const T> dy, View<T> dgate_up) {
  if (dy.rows == 0 || dy.cols == 0) return;
  const auto run = [&]<int N>() {
    const CoverShape shape = cover<N, pieces>(dy.rows, dy.cols);
    launch("swiglu_backward", backward<T, N>, {shape.grid, shape.block, 0, stream},
           Cover<N, pieces>{shape.across}, gate_up, dy, dgate_up);
  };
  constexpr int wide = vector_width<T>();
  if (halves_fit<wide>(gate_up, dy.cols) && fits<wide>(dy) && halves_fit<wide>(dgate_up, dy.cols)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

#define BDLM_SWIGLU(T)                                                                   \
  template void swiglu_forward<T>(Stream, View<const T>, View<const sum_t<T>>, View<T>); \
  template void swiglu_backward<T>(Stream, View<const T>, View<const T>, View<T>);
BDLM_SWIGLU(double)
BDLM_SWIGLU(float)
BDLM_SWIGLU(bfloat16)

}  // namespace bdlm::cuda
