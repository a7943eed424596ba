// SPDX-License-Identifier: Apache-2.0
// Gradient of the token embedding: for each id, the sum of its rows. Ids are very uneven: most come
// once or twice, the mask token thousands of times. Short runs take a block each and add in order;
// long ones take many warps a run, whose sums are added in the order of the warps.
#include <algorithm>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector_io.cuh"

namespace bdlm::cuda {
namespace {

constexpr std::int32_t longest_short = 64;  // rows
constexpr unsigned short_threads = 128;
constexpr unsigned long_warps = 16;

/// Adds rows order[first], order[first + step], ... below last to sum.
template <int N, class T>
CU_INLINE void add_rows(const T* dy, std::int64_t stride, const std::int32_t* order,
                        std::int32_t first, std::int32_t last, std::int32_t step,
                        sum_t<T> (&sum)[N]) {
#pragma unroll 4
  for (std::int32_t i = first; i < last; i += step) {
    const Vector<T, N> x = load_vector<N>(dy + order[i] * stride);
#pragma unroll
    for (int k = 0; k < N; ++k) sum[k] += load(x.at[k]);
  }
}

/// Block (g, c): run g, columns of chunk c.
template <class T, int N>
__global__ void __launch_bounds__(short_threads)
    add_short_runs(const std::int32_t* __restrict__ ids, const std::int32_t* __restrict__ order,
                   const std::int32_t* __restrict__ group, View<const T> dy,
                   View<sum_t<T>> dtable) {
  using A = sum_t<T>;
  const std::int32_t first = group[blockIdx.x], last = group[blockIdx.x + 1];
  const std::int64_t col =
      (static_cast<std::int64_t>(blockIdx.y) * short_threads + threadIdx.x) * N;
  if (last - first > longest_short || col >= dy.cols) return;
  A* out = dtable.data + ids[order[first]] * dtable.stride + col;
  Vector<A, N> sum = load_vector<N>(out);
  add_rows<N>(dy.data + col, dy.stride, order, first, last, 1, sum.at);
  store_vector<N>(out, sum);
}

/// Block (c, s): columns of chunk c; of the long runs, those whose window of 32 runs is the s-th,
/// counted round.
template <class T, int N>
__global__ void __launch_bounds__(long_warps* lanes)
    add_long_runs(const std::int32_t* __restrict__ ids, const std::int32_t* __restrict__ order,
                  const std::int32_t* __restrict__ group, std::int64_t groups, View<const T> dy,
                  View<sum_t<T>> dtable) {
  using A = sum_t<T>;
  __shared__ A sums[long_warps][lanes * N];
  const unsigned lane = threadIdx.x, warp = threadIdx.y;
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * lanes * N;
  const std::int64_t col = begin + lane * N;
  for (std::int64_t window = blockIdx.y * lanes; window < groups; window += gridDim.y * lanes) {
    const std::int64_t mine = window + lane;
    unsigned found =
        __ballot_sync(all_lanes, mine < groups && group[mine + 1] - group[mine] > longest_short);
    for (; found != 0; found &= found - 1) {  // the same in all warps
      const std::int64_t run = window + __ffs(static_cast<int>(found)) - 1;
      const std::int32_t first = group[run], last = group[run + 1];
      A sum[N] = {};
      if (col < dy.cols) {
        add_rows<N>(dy.data + col, dy.stride, order, first + static_cast<std::int32_t>(warp), last,
                    long_warps, sum);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) sums[warp][lane * N + k] = sum[k];
      __syncthreads();
      A* out = dtable.data + ids[order[first]] * dtable.stride + begin;
      for (unsigned i = warp * lanes + lane; i < lanes * N; i += long_warps * lanes) {
        if (begin + i >= dy.cols) continue;
        A total = sums[0][i];
#pragma unroll
        for (unsigned w = 1; w < long_warps; ++w) total += sums[w][i];
        out[i] += total;
      }
      __syncthreads();
    }
  }
}

}  // namespace

template <class T>
void embedding_backward(Stream stream, const std::int32_t* ids, const std::int32_t* order,
                        const std::int32_t* group, std::int64_t groups, View<const T> dy,
                        View<sum_t<T>> dtable) {
  if (groups == 0 || dy.cols == 0) return;
  const auto run = [&]<int N>() {
    const std::int64_t across = ceil_div<std::int64_t>(dy.cols, short_threads * N);
    launch("embedding_backward", add_short_runs<T, N>,
           {dim3(static_cast<unsigned>(groups), static_cast<unsigned>(across)), dim3(short_threads),
            0, stream},
           ids, order, group, dy, dtable);
  };
  // Long runs take narrower chunks of columns, 8 bytes or less a lane, to fill the processors.
  const auto run_long = [&]<int N>() {
    const std::int64_t across = ceil_div<std::int64_t>(dy.cols, lanes * N);
    const std::int64_t windows = ceil_div<std::int64_t>(groups, lanes);
    launch("embedding_backward", add_long_runs<T, N>,
           {dim3(static_cast<unsigned>(across),
                 static_cast<unsigned>(std::min<std::int64_t>(windows, 64))),
            dim3(lanes, long_warps), 0, stream},
           ids, order, group, groups, dy, dtable);
  };
  constexpr int wide = vector_width<T, sum_t<T>>();
  const bool aligned = fits<wide>(dy) && fits<wide>(dtable);
  aligned ? run.template operator()<wide>() : run.template operator()<1>();
  if (dy.rows <= longest_short) return;
  aligned ? run_long.template operator()<wide>() : run_long.template operator()<1>();
}

#define BDLM_EMBEDDING(T)                                                               \
  template void embedding_backward<T>(Stream, const std::int32_t*, const std::int32_t*, \
                                      const std::int32_t*, std::int64_t, View<const T>, \
                                      View<sum_t<T>>);
BDLM_EMBEDDING(double)
BDLM_EMBEDDING(float)
BDLM_EMBEDDING(bfloat16)

}  // namespace bdlm::cuda
