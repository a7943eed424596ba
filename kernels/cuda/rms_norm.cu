// SPDX-License-Identifier: Apache-2.0
// Root-mean-square norm (Zhang and Sennrich, arXiv 1910.07467) over a row, forward. A row stays in
// registers between its two passes; a longer one, or one of odd width, is read twice.
#include <cmath>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/rms_norm.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned most_threads = 1024;

template <class T, int N>
CU_INLINE sum_t<T> squares(const Vector<T, N>& x) {
  sum_t<T> sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) sum += load(x.at[k]) * load(x.at[k]);
  return sum;
}

template <class T, class X, int N>
CU_INLINE void store_normed(const Vector<X, N>& x, sum_t<T> scale, const T* weight, T* y) {
  const Vector<T, N> w = load_vector<N>(weight);
  Vector<T, N> out;
#pragma unroll
  for (int k = 0; k < N; ++k) store(out.at[k], load(x.at[k]) * scale * load(w.at[k]));
  store_vector<N>(y, out);
}

/// V vectors of the row in each thread's registers; V = 0: any number, read twice.
template <class T, class X, int N, int V>
__global__ void __launch_bounds__(most_threads)
    normalise(View<const X> x, const T* __restrict__ weight, sum_t<T> eps, View<T> y,
              View<sum_t<T>> rstd) {
  using A = sum_t<T>;
  __shared__ A sums[lanes];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
  const bool live = row < x.rows;  // the others take part in the sum
  const int cols = live ? static_cast<int>(x.cols) : 0;
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  const X* in = x.data + row * x.stride;
  T* out = y.data + row * y.stride;

  Vector<X, N> kept[V > 0 ? V : 1] = {};
  A sum = 0;
  if constexpr (V > 0) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (first + v * step < cols) kept[v] = load_vector<N>(in + first + v * step);
    }
#pragma unroll
    for (int v = 0; v < V; ++v) sum += squares(kept[v]);
  } else {
#pragma unroll 4
    for (int col = first; col < cols; col += step) sum += squares(load_vector<N>(in + col));
  }
  sum = row_sum(sum, sums);
  const A scale = A(1) / std::sqrt(sum / static_cast<A>(x.cols) + eps);
  if (live && threadIdx.x == 0) rstd.data[row * rstd.stride] = scale;

  if constexpr (V > 0) {
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int col = first + v * step;
      if (col < cols) store_normed(kept[v], scale, weight + col, out + col);
    }
  } else {
#pragma unroll 4
    for (int col = first; col < cols; col += step) {
      store_normed(load_vector<N>(in + col), scale, weight + col, out + col);
    }
  }
}

}  // namespace

template <class T, class X>
void rms_norm_forward(Stream stream, View<const X> x, View<const T> weight, double eps, View<T> y,
                      View<sum_t<T>> rstd) {
  if (x.rows == 0 || x.cols == 0) return;
  const auto run = [&]<int N, int V>(dim3 block) {
    const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(x.rows, block.y));
    launch("rms_norm_forward", normalise<T, X, N, V>, {dim3(blocks), block, 0, stream}, x,
           weight.data, static_cast<sum_t<T>>(eps), y, rstd);
  };
  constexpr int wide = vector_width<T, X>();
  if (fits<wide>(x) && fits<wide>(weight) && fits<wide>(y)) {
    const dim3 block = norm_block(x.cols / wide, most_threads);
    with_vectors(x.cols / wide, block.x, [&]<int V>() { run.template operator()<wide, V>(block); });
  } else {
    run.template operator()<1, 0>(norm_block(x.cols, most_threads));
  }
}

#define BDLM_RMS_NORM(T, X)                                                                   \
  template void rms_norm_forward<T, X>(Stream, View<const X>, View<const T>, double, View<T>, \
                                       View<sum_t<T>>);
BDLM_RMS_NORM(double, double)
BDLM_RMS_NORM(float, float)
BDLM_RMS_NORM(bfloat16, bfloat16)
BDLM_RMS_NORM(bfloat16, float)

}  // namespace bdlm::cuda
