// SPDX-License-Identifier: Apache-2.0
// How threads share the rows of a norm: the same for the forward and the backward pass.
#pragma once

#include <algorithm>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector_io.cuh"

namespace bdlm::cuda {

inline constexpr int most_vectors = 4;  // of a row, in one thread's registers

/// A block is blockDim.y rows of blockDim.x threads, one for each row of the matrix.
inline dim3 norm_block(std::int64_t vectors, unsigned most_threads) {
  unsigned threads = lanes;
  while (threads < most_threads && std::int64_t{threads} * most_vectors < vectors) threads *= 2;
  return dim3(threads, std::max(1u, 256 / threads));
}

/// body.operator()<V>() with V vectors a thread, enough for the row: 1, 2 or 4; 0 if it is longer.
template <class Body>
void with_vectors(std::int64_t vectors, unsigned threads, Body&& body) {
  const std::int64_t each = ceil_div<std::int64_t>(vectors, threads);
  if (each <= 1) return body.template operator()<1>();
  if (each <= 2) return body.template operator()<2>();
  if (each <= most_vectors) return body.template operator()<most_vectors>();
  body.template operator()<0>();
}

}  // namespace bdlm::cuda
