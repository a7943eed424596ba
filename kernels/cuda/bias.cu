// SPDX-License-Identifier: Apache-2.0
// The bias of a linear layer and its gradient, the sum of rows.
#include <algorithm>

#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/cover.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bdlm::cuda {
namespace {

constexpr int pieces = 4;
constexpr unsigned warps = 8;  // of a block that sums rows
// Blocks of that size on all processors of an H200, four on each.
constexpr std::int64_t wanted_blocks = 528;

template <class T, int N>
__global__ void __launch_bounds__(cover_threads)
    add_row(Cover<N, pieces> cover, const T* __restrict__ bias, View<T> y) {
  const std::int64_t row = cover.row();
  if (row >= y.rows) return;
  T* out = y.data + row * y.stride;
  Vector<T, N> x[pieces], b[pieces];
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    const std::int64_t col = cover.col(p);
    if (col >= y.cols) continue;
    x[p] = load_vector<N>(out + col);
    b[p] = load_vector<N>(bias + col);
  }
#pragma unroll
  for (int p = 0; p < pieces; ++p) {
    const std::int64_t col = cover.col(p);
    if (col >= y.cols) continue;
#pragma unroll
    for (int k = 0; k < N; ++k) store(x[p].at[k], load(x[p].at[k]) + load(b[p].at[k]));
    store_vector<N>(out + col, x[p]);
  }
}

/// Block (c, s): the sum of `slice` rows over 32 N columns. Warps take the rows by turns.
template <class T, int N>
__global__ void __launch_bounds__(warps* lanes)
    sum_rows(View<const T> x, std::int64_t slice, View<sum_t<T>> partial) {
  using A = sum_t<T>;
  __shared__ A sums[warps][lanes * N];
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * lanes + threadIdx.x) * N;
  const std::int64_t first = blockIdx.y * slice;
  const std::int64_t last = first + slice < x.rows ? first + slice : x.rows;
  A sum[N] = {};
  if (col < x.cols) {
#pragma unroll 4
    for (std::int64_t row = first + threadIdx.y; row < last; row += warps) {
      const Vector<T, N> v = load_vector<N>(x.data + row * x.stride + col);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] += load(v.at[k]);
    }
  }
#pragma unroll
  for (int k = 0; k < N; ++k) sums[threadIdx.y][threadIdx.x * N + k] = sum[k];
  __syncthreads();
  for (unsigned i = threadIdx.y * lanes + threadIdx.x; i < lanes * N; i += warps * lanes) {
    const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * lanes * N + i;
    if (at >= x.cols) continue;
    A total = sums[0][i];
#pragma unroll
    for (unsigned w = 1; w < warps; ++w) total += sums[w][i];
    partial.data[blockIdx.y * partial.stride + at] = total;
  }
}

}  // namespace

template <class T>
void add_bias(Stream stream, View<const T> bias, View<T> y) {
  if (y.rows == 0 || y.cols == 0) return;
  const auto run = [&]<int N>() {
    const CoverShape shape = cover<N, pieces>(y.rows, y.cols);
    launch("add_bias", add_row<T, N>, {shape.grid, shape.block, 0, stream},
           Cover<N, pieces>{shape.across}, bias.data, y);
  };
  constexpr int wide = vector_width<T>();
  if (fits<wide>(bias) && fits<wide>(y)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
}

template <class T>
void bias_gradient(Stream stream, View<const T> dy, View<sum_t<T>> partial, View<sum_t<T>> dbias) {
  if (dy.rows == 0 || dy.cols == 0) return;
  const auto run = [&]<int N>() {
    const std::int64_t across = ceil_div<std::int64_t>(dy.cols, lanes * N);
    // No slice shorter than four rows a warp, as each costs a row of partial sums.
    std::int64_t slices =
        std::min(ceil_div(wanted_blocks, across), ceil_div<std::int64_t>(dy.rows, 4 * warps));
    slices = std::min(slices, partial.rows);
    const std::int64_t slice = ceil_div(dy.rows, slices);
    partial.rows = ceil_div(dy.rows, slice);
    const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(partial.rows));
    launch("bias_gradient", sum_rows<T, N>, {grid, dim3(lanes, warps), 0, stream}, dy, slice,
           partial);
  };
  constexpr int wide = vector_width<T>();
  if (fits<wide>(dy)) {
    run.template operator()<wide>();
  } else {
    run.template operator()<1>();
  }
  add_partials<sum_t<T>>(stream, {partial.data, partial.rows, dy.cols, partial.stride}, dbias);
}

#define BDLM_BIAS(T)                                         \
  template void add_bias<T>(Stream, View<const T>, View<T>); \
  template void bias_gradient<T>(Stream, View<const T>, View<sum_t<T>>, View<sum_t<T>>);
BDLM_BIAS(double)
BDLM_BIAS(float)
BDLM_BIAS(bfloat16)

}  // namespace bdlm::cuda
