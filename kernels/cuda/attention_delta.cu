// SPDX-License-Identifier: Apache-2.0
// delta = the sum over a head's channels of out * dout. Reads both once and writes next to nothing.
// Groups of 8, 16 or 32 lanes own one (row, head) each, so that a load is 16 bytes a lane and
// short heads leave no lane idle.
#include "kernels/cuda/attention_ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector_io.cuh"

namespace bdlm::cuda {
namespace {

constexpr int threads = 256;

template <int N, class T, class O>
__global__ void __launch_bounds__(threads)
    delta_kernel(int heads, int head_dim, int group_lanes, View<const O> out, View<const T> dout,
                 View<sum_t<T>> delta) {
  using A = sum_t<T>;
  const int lane = static_cast<int>(threadIdx.x) % group_lanes;
  const std::int64_t job = (std::int64_t{blockIdx.x} * threads + threadIdx.x) / group_lanes;
  const std::int64_t row = job / heads;
  const int head = static_cast<int>(job % heads);
  A sum = 0;
  if (row < out.rows) {
    const std::int64_t column = std::int64_t{head} * head_dim;
    const O* const a = out.data + row * out.stride + column;
    const T* const b = dout.data + row * dout.stride + column;
    for (int c = lane * N; c < head_dim; c += group_lanes * N) {
      const Vector<O, N> x = load_vector<N>(a + c);
      const Vector<T, N> y = load_vector<N>(b + c);
#pragma unroll
      for (int i = 0; i < N; ++i) sum += load(x.at[i]) * load(y.at[i]);
    }
  }
  sum = combine_lanes(sum, static_cast<unsigned>(group_lanes), Sum());
  if (lane == 0 && row < out.rows) delta.data[row * delta.stride + head] = sum;
}

template <int N, class T, class O>
void launch_delta(Stream stream, const AttentionSizes& sizes, View<const O> out, View<const T> dout,
                  View<sum_t<T>> delta) {
  int lanes = 8;
  while (lanes < 32 && lanes * N < sizes.head_dim) lanes *= 2;
  const std::int64_t blocks = ceil_div<std::int64_t>(out.rows * sizes.heads * lanes, threads);
  launch("attention_delta", delta_kernel<N, T, O>,
         Launch{dim3(static_cast<unsigned>(blocks)), dim3(threads), 0, stream}, sizes.heads,
         sizes.head_dim, lanes, out, dout, delta);
}

}  // namespace

template <class T, class O>
void attention_delta(Stream stream, const AttentionSizes& sizes, View<const O> out,
                     View<const T> dout, View<sum_t<T>> delta) {
  constexpr int unit = vector_width<T>();
  if (sizes.head_dim % unit == 0 && fits<unit>(out) && fits<unit>(dout)) {
    launch_delta<unit>(stream, sizes, out, dout, delta);
  } else {
    launch_delta<1>(stream, sizes, out, dout, delta);
  }
}

#define BDLM_ATTENTION_DELTA(T, O)                                                           \
  template void attention_delta(Stream, const AttentionSizes&, View<const O>, View<const T>, \
                                View<sum_t<T>>)
BDLM_ATTENTION_DELTA(double, double);
BDLM_ATTENTION_DELTA(float, float);
BDLM_ATTENTION_DELTA(bfloat16, bfloat16);
BDLM_ATTENTION_DELTA(bfloat16, float);
#undef BDLM_ATTENTION_DELTA

}  // namespace bdlm::cuda
