// SPDX-License-Identifier: Apache-2.0
// How the threads of a launch cover a matrix that is worked on element by element.
#pragma once

#include "kernels/cuda/vector_io.cuh"

namespace bdlm::cuda {

inline constexpr unsigned cover_threads = 256;

/// A block is blockDim.y rows of blockDim.x threads, narrow where the matrix is; `across` blocks
/// lie side by side on a row of the matrix. A thread takes `pieces` vectors of N elements,
/// blockDim.x apart, so that their loads are all in flight before the first is used.
template <int N, int pieces>
struct Cover {
  unsigned across;

  CU_INLINE std::int64_t row() const {
    return static_cast<std::int64_t>(blockIdx.x / across) * blockDim.y + threadIdx.y;
  }
  CU_INLINE std::int64_t col(int piece) const {
    const std::int64_t side = static_cast<std::int64_t>(blockIdx.x % across) * pieces + piece;
    return (side * blockDim.x + threadIdx.x) * N;
  }
};

struct CoverShape {
  dim3 grid, block;
  unsigned across;
};

template <int N, int pieces>
CoverShape cover(std::int64_t rows, std::int64_t cols) {
  const std::int64_t vectors = ceil_div<std::int64_t>(cols, N);
  unsigned threads = 1;  // along a row
  while (threads < cover_threads && std::int64_t{threads} * pieces < vectors) threads *= 2;
  const unsigned block_rows = cover_threads / threads;
  const std::int64_t across = ceil_div<std::int64_t>(vectors, std::int64_t{threads} * pieces);
  const std::int64_t blocks = across * ceil_div<std::int64_t>(rows, block_rows);
  return {dim3(static_cast<unsigned>(blocks)), dim3(threads, block_rows),
          static_cast<unsigned>(across)};
}

/// The same matrices as one row each, when all are contiguous: fewer edges.
template <class... T>
void merge_rows(View<T>&... x) {
  if (!(x.contiguous() && ...)) return;
  ((x = {x.data, x.rows * x.cols > 0 ? 1 : 0, x.rows * x.cols, x.rows * x.cols}), ...);
}

}  // namespace bdlm::cuda
