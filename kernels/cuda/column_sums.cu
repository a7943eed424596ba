// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/column_sums.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned warps = 16;

/// A lane is a column, the warps share the rows.
template <class A>
__global__ void __launch_bounds__(warps* lanes) add_rows(View<const A> partial, A* sum) {
  __shared__ A sums[warps][lanes];
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * lanes + threadIdx.x;
  A x = 0;
  if (col < partial.cols) {
#pragma unroll 4
    for (std::int64_t row = threadIdx.y; row < partial.rows; row += warps) {
      x += partial.data[row * partial.stride + col];
    }
  }
  sums[threadIdx.y][threadIdx.x] = x;
  __syncthreads();
  if (threadIdx.y == 0 && col < partial.cols) {
#pragma unroll
    for (unsigned w = 1; w < warps; ++w) x += sums[w][threadIdx.x];
    sum[col] += x;
  }
}

}  // namespace

template <class A>
void add_partials(Stream stream, View<const A> partial, View<A> sum) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(partial.cols, lanes));
  launch("add_partials", add_rows<A>, {dim3(blocks), dim3(lanes, warps), 0, stream}, partial,
         sum.data);
}

template void add_partials(Stream, View<const float>, View<float>);
template void add_partials(Stream, View<const double>, View<double>);

}  // namespace bdlm::cuda
