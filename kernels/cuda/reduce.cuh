// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over a warp and over the threads of a block, in a fixed order.
#pragma once

#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {

inline constexpr unsigned all_lanes = 0xffffffffu;
inline constexpr unsigned lanes = 32;

struct Sum {
  template <class A>
  CU_INLINE A operator()(A a, A b) const {
    return a + b;
  }
};

/// Passes over NaN.
struct Largest {
  template <class A>
  CU_INLINE A operator()(A a, A b) const {
    return b > a ? b : a;
  }
};

/// Combines each group of `width` neighbouring lanes, a power of two; every lane gets its group's
/// result. The whole warp takes part.
template <class A, class Combine>
CU_INLINE A combine_lanes(A x, unsigned width, Combine combine) {
  for (unsigned offset = width / 2; offset > 0; offset /= 2) {
    x = combine(x, __shfl_xor_sync(all_lanes, x, offset));
  }
  return x;
}

template <class A>
CU_INLINE A warp_sum(A x) {
  return combine_lanes(x, lanes, Sum());
}

/// Combines each row of threads (blockDim.x, a power of two from 32 on) of a block; every thread
/// gets its row's result. The whole block takes part. `shared` has 32 elements, one a warp.
template <class A, class Combine>
CU_INLINE A combine_row(A x, A none, A* shared, Combine combine) {
  x = combine_lanes(x, lanes, combine);
  if (blockDim.x == lanes) return x;
  const unsigned warps = blockDim.x / lanes;
  const unsigned lane = threadIdx.x % lanes, first = threadIdx.y * warps;
  __syncthreads();  // `shared` may still be read from the last time
  if (lane == 0) shared[first + threadIdx.x / lanes] = x;
  __syncthreads();
  x = lane < warps ? shared[first + lane] : none;
  return combine_lanes(x, lanes, combine);
}

template <class A>
CU_INLINE A row_sum(A x, A* shared) {
  return combine_row(x, A(0), shared, Sum());
}

}  // namespace bdlm::cuda
