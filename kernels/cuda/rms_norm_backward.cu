// SPDX-License-Identifier: Apache-2.0
// Gradients of the root-mean-square norm. With n = x rstd:
// dx += rstd (w dy - n mean(n w dy)) and dw += sum over rows of n dy.
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/rms_norm.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned most_threads = 512;  // 128 registers each

template <class T, class X, int N>
CU_INLINE sum_t<T> dot(const Vector<X, N>& x, const Vector<T, N>& dy, const T* weight) {
  const Vector<T, N> w = load_vector<N>(weight);
  sum_t<T> sum = 0;
#pragma unroll
  for (int k = 0; k < N; ++k) sum += load(x.at[k]) * load(w.at[k]) * load(dy.at[k]);
  return sum;
}

/// Adds to dx; dw[k] receives this row's part of the weight's gradient.
template <class T, class X, int N>
CU_INLINE void add_gradient(const Vector<X, N>& x, const Vector<T, N>& dy, const T* weight,
                            sum_t<T> scale, sum_t<T> mean, X* dx, sum_t<T> (&dw)[N]) {
  const Vector<T, N> w = load_vector<N>(weight);
  Vector<X, N> out = load_vector<N>(dx);
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const sum_t<T> normed = load(x.at[k]) * scale, g = load(dy.at[k]);
    store(out.at[k], load(out.at[k]) + scale * (load(w.at[k]) * g - normed * mean));
    dw[k] += normed * g;
  }
  store_vector<N>(dx, out);
}

/// Blocks take rows by turns and keep their sum for dweight in registers. A row has V vectors in
/// each thread.
template <class T, class X, int N, int V>
__global__ void __launch_bounds__(most_threads)
    rows_in_registers(View<const X> x, const T* __restrict__ weight, View<const sum_t<T>> rstd,
                      View<const T> dy, View<X> dx, View<sum_t<T>> partial) {
  using A = sum_t<T>;
  CU_DYNAMIC_SHARED(A, other);  // one row of threads' dweight
  __shared__ A sums[lanes];
  const int cols = static_cast<int>(x.cols);
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  A dw[V][N] = {};
  // All rows of threads go round equally often: they meet in the sum.
  for (std::int64_t base = static_cast<std::int64_t>(blockIdx.x) * blockDim.y; base < x.rows;
       base += static_cast<std::int64_t>(gridDim.x) * blockDim.y) {
    const std::int64_t row = base + threadIdx.y;
    const int end = row < x.rows ? cols : 0;
    const A scale = row < x.rows ? rstd.data[row * rstd.stride] : A(0);
    Vector<X, N> in[V] = {};
    Vector<T, N> grad[V] = {};
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int col = first + v * step;
      if (col >= end) continue;
      in[v] = load_vector<N>(x.data + row * x.stride + col);
      grad[v] = load_vector<N>(dy.data + row * dy.stride + col);
    }
    A sum = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      if (first + v * step < end) sum += dot(in[v], grad[v], weight + first + v * step);
    }
    const A mean = row_sum(sum, sums) * scale / static_cast<A>(cols);
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const int col = first + v * step;
      if (col >= end) continue;
      add_gradient(in[v], grad[v], weight + col, scale, mean, dx.data + row * dx.stride + col,
                   dw[v]);
    }
  }
  // The block's rows of threads, added one after the other.
  for (unsigned turn = 1; turn < blockDim.y; ++turn) {
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        const unsigned at = (v * N + k) * blockDim.x + threadIdx.x;
        if (threadIdx.y == turn) other[at] = dw[v][k];
      }
    }
    __syncthreads();
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (threadIdx.y == 0) dw[v][k] += other[(v * N + k) * blockDim.x + threadIdx.x];
      }
    }
  }
  if (threadIdx.y != 0) return;
  A* out = partial.data + blockIdx.x * partial.stride;
#pragma unroll
  for (int v = 0; v < V; ++v) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const int col = first + v * step + k;
      if (col < cols) out[col] = dw[v][k];
    }
  }
}

/// Any width: rows are read twice, and the block's sum for dweight is kept in its row of partial.
template <class T, class X, int N>
__global__ void __launch_bounds__(most_threads, 1)
    rows_read_twice(View<const X> x, const T* __restrict__ weight, View<const sum_t<T>> rstd,
                    View<const T> dy, View<X> dx, View<sum_t<T>> partial) {
  using A = sum_t<T>;
  __shared__ A sums[lanes];
  const int cols = static_cast<int>(x.cols);
  const int first = static_cast<int>(threadIdx.x) * N, step = static_cast<int>(blockDim.x) * N;
  A* total = partial.data + blockIdx.x * partial.stride;
  for (std::int64_t row = blockIdx.x; row < x.rows; row += gridDim.x) {
    const X* in = x.data + row * x.stride;
    const T* grad = dy.data + row * dy.stride;
    X* out = dx.data + row * dx.stride;
    const A scale = rstd.data[row * rstd.stride];
    A sum = 0;
    for (int col = first; col < cols; col += step) {
      sum += dot(load_vector<N>(in + col), load_vector<N>(grad + col), weight + col);
    }
    const A mean = row_sum(sum, sums) * scale / static_cast<A>(cols);
    for (int col = first; col < cols; col += step) {
      A dw[N] = {};
      add_gradient(load_vector<N>(in + col), load_vector<N>(grad + col), weight + col, scale, mean,
                   out + col, dw);
#pragma unroll
      for (int k = 0; k < N; ++k) {
        total[col + k] = row == blockIdx.x ? dw[k] : total[col + k] + dw[k];
      }
    }
  }
}

}  // namespace

template <class T, class X>
void rms_norm_backward(Stream stream, View<const X> x, View<const T> weight,
                       View<const sum_t<T>> rstd, View<const T> dy, View<X> dx,
                       View<sum_t<T>> partial, View<sum_t<T>> dweight) {
  using A = sum_t<T>;
  if (x.rows == 0 || x.cols == 0) return;
  const auto run = [&]<int N, int V>(dim3 block) {
    partial.rows = std::min(partial.rows, ceil_div<std::int64_t>(x.rows, block.y));
    Launch l{dim3(static_cast<unsigned>(partial.rows)), block, 0, stream};
    if constexpr (V > 0) {
      if (block.y > 1) l.shared = std::size_t{block.x} * V * N * sizeof(A);
      launch("rms_norm_backward", rows_in_registers<T, X, N, V>, l, x, weight.data, rstd, dy, dx,
             partial);
    } else {
      launch("rms_norm_backward", rows_read_twice<T, X, N>, l, x, weight.data, rstd, dy, dx,
             partial);
    }
  };
  constexpr int wide = vector_width<T, X>();
  if (fits<wide>(x) && fits<wide>(weight) && fits<wide>(dy) && fits<wide>(dx)) {
    const dim3 block = norm_block(x.cols / wide, most_threads);
    with_vectors(x.cols / wide, block.x, [&]<int V>() {
      run.template operator()<wide, V>(V > 0 ? block : dim3(most_threads));
    });
  } else {
    run.template operator()<1, 0>(dim3(norm_block(x.cols, most_threads).x));
  }
  add_partials<A>(stream, {partial.data, partial.rows, x.cols, partial.stride}, dweight);
}

#define BDLM_RMS_NORM_BACKWARD(T, X)                                                    \
  template void rms_norm_backward<T, X>(Stream, View<const X>, View<const T>,           \
                                        View<const sum_t<T>>, View<const T>, View<X>,   \
                                        View<sum_t<T>>, View<sum_t<T>>);
BDLM_RMS_NORM_BACKWARD(double, double)
BDLM_RMS_NORM_BACKWARD(float, float)
BDLM_RMS_NORM_BACKWARD(bfloat16, bfloat16)
BDLM_RMS_NORM_BACKWARD(bfloat16, float)

}  // namespace bdlm::cuda
