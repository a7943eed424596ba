// SPDX-License-Identifier: Apache-2.0
// One row of logits in one block: the largest logit and the sum of exponentials, and the gradient.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/vector_io.cuh"

namespace bdlm::cuda {

/// Threads of a block at most: 64 registers each, or 128 for double.
template <class A>
constexpr unsigned row_threads = sizeof(A) == 8 ? 512 : 1024;
template <class A>
constexpr int row_batch = sizeof(A) == 8 ? 2 : 4;  // vectors that a thread loads at once

template <class A>
constexpr A infinity = std::numeric_limits<A>::infinity();

struct Statistics {
  double largest, sum, target;  // sum of exp(logit - largest); the target's logit
};

/// A row of logits as its threads see it. Ids count from the row's first one.
template <class A, int N>
struct LogitRow {
  const A* data;
  int cols, target, excluded;  // target and excluded: outside [0, cols) when not in this row
  A* cache;
  int cached;  // elements, a multiple of N

  CU_INLINE int batches() const {
    const int one = static_cast<int>(blockDim.x) * N * row_batch<A>;
    return (cols + one - 1) / one;
  }
  CU_INLINE int col(int b, int i) const {
    return ((b * row_batch<A> + i) * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) *
           N;
  }
  /// Position of the excluded id in the vector at col, if it is there.
  CU_INLINE bool excludes(int col) const { return excluded >= col && excluded < col + N; }
};

/// Largest logit and sum of a thread's elements; the excluded id counts as -infinity.
template <class A, int N>
CU_INLINE void add_batch(const LogitRow<A, N>& row, int b, A& largest, double& sum) {
  Vector<A, N> x[row_batch<A>];
#pragma unroll
  for (int i = 0; i < row_batch<A>; ++i) {
    const int col = row.col(b, i);
    if (col < row.cols) {
      x[i] = load_vector<N>(row.data + col);
    } else {
#pragma unroll
      for (int k = 0; k < N; ++k) x[i].at[k] = -infinity<A>;
    }
  }
  A top = largest;
#pragma unroll
  for (int i = 0; i < row_batch<A>; ++i) {
    const int col = row.col(b, i);
    if (col < row.cached) store_vector<N>(row.cache + col, x[i]);
    if (row.excludes(col)) {
#pragma unroll
      for (int k = 0; k < N; ++k) {
        if (col + k == row.excluded) x[i].at[k] = -infinity<A>;
      }
    }
#pragma unroll
    for (int k = 0; k < N; ++k) top = Largest()(top, x[i].at[k]);
  }
  const A shift = top == -infinity<A> ? A(0) : top;  // -inf - -inf would be NaN
  A piece = 0;
#pragma unroll
  for (int i = 0; i < row_batch<A>; ++i) {
#pragma unroll
    for (int k = 0; k < N; ++k) piece += std::exp(x[i].at[k] - shift);
  }
  // In double over pieces: a vocabulary is long for float.
  sum = sum * static_cast<double>(std::exp(largest - shift)) + static_cast<double>(piece);
  largest = top;
}

/// The whole block; every thread gets the result, after all have read the row.
template <class A, int N>
CU_INLINE Statistics row_statistics(const LogitRow<A, N>& row) {
  __shared__ A largest_of[lanes];
  __shared__ double sum_of[lanes];
  const bool here = row.target >= 0 && row.target < row.cols && row.target != row.excluded;
  const A target = here ? row.data[row.target] : -infinity<A>;
  A largest = -infinity<A>;
  double sum = 0;
  for (int b = 0; b < row.batches(); ++b) add_batch(row, b, largest, sum);

  const A top = combine_row(largest, -infinity<A>, largest_of, Largest());
  if (largest != top) sum *= static_cast<double>(std::exp(largest - top));
  sum = row_sum(sum, sum_of);
  __syncthreads();  // also a lone warp: its lanes may write the target's logit from here on
  return {static_cast<double>(top), sum, static_cast<double>(target)};
}

template <class A, class T, int N>
CU_INLINE void row_gradient(const LogitRow<A, N>& row, const Statistics& s, A weight, T* out) {
  const A shift = static_cast<A>(s.largest);
  const A factor = static_cast<A>(static_cast<double>(weight) / s.sum);
  for (int b = row.batches() - 1; b >= 0; --b) {
    Vector<A, N> x[row_batch<A>];
#pragma unroll
    for (int i = 0; i < row_batch<A>; ++i) {
      const int col = row.col(b, i);
      if (col >= row.cols) continue;
      if (col < row.cached) {
        x[i] = load_vector<N>(row.cache + col);
      } else {
        x[i] = load_vector<N>(row.data + col);
      }
    }
#pragma unroll
    for (int i = 0; i < row_batch<A>; ++i) {
      const int col = row.col(b, i);
      if (col >= row.cols) continue;
      Vector<T, N> y;
#pragma unroll
      for (int k = 0; k < N; ++k) store(y.at[k], std::exp(x[i].at[k] - shift) * factor);
      store_vector<N>(out + col, y);
      if (row.target >= col && row.target < col + N) {
        // In double and not from the rounded weight * p: 1 - p is small when the model is sure.
        const double p = std::exp(s.target - s.largest) / s.sum;
        store(out[row.target], static_cast<A>(static_cast<double>(weight) * (p - 1)));
      }
      if (row.excludes(col)) store(out[row.excluded], A(0));
    }
  }
}

}  // namespace bdlm::cuda
