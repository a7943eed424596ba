// SPDX-License-Identifier: Apache-2.0
// Interval attention without tensor cores: any type, head size up to 512, any stride. A warp owns one
// row of one head. Its lanes take one row of the other side each, 32 at a time, for the scores, and
// then the channels, for the weighted sum; no sum depends on the order of threads.
#pragma once

#include "kernels/cuda/attention_ops.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bdlm::cuda {
namespace {

constexpr int warps = 4;          // of a block, independent of each other
constexpr int most_columns = 16;  // 32 lanes * 16 = 512 channels

/// Which row and head this warp owns; `head` counts fastest, so that neighbours share keys.
struct WarpJob {
  int lane, warp;
  std::int64_t row;
  int head;
  bool active;

  CU_INLINE WarpJob(std::int64_t rows, int heads) {
    lane = static_cast<int>(threadIdx.x) % 32;
    warp = static_cast<int>(threadIdx.x) / 32;
    const std::int64_t job = std::int64_t{blockIdx.x} * warps + warp;
    row = job / heads;
    head = static_cast<int>(job % heads);
    active = row < rows;
  }
};

template <class T>
CU_INLINE void read_row(sum_t<T>* to, const T* from, int channels, int lane) {
  for (int c = lane; c < channels; c += 32) to[c] = load(from[c]);
}

/// Four chains: less rounding error, and the multiply-adds overlap.
template <class T>
CU_INLINE sum_t<T> dot(const sum_t<T>* a, const T* b, int channels) {
  sum_t<T> s0 = 0, s1 = 0, s2 = 0, s3 = 0;
  int c = 0;
#pragma unroll 1
  for (; c + 4 <= channels; c += 4) {
    s0 += a[c] * load(b[c]);
    s1 += a[c + 1] * load(b[c + 1]);
    s2 += a[c + 2] * load(b[c + 2]);
    s3 += a[c + 3] * load(b[c + 3]);
  }
  for (; c < channels; ++c) s0 += a[c] * load(b[c]);
  return (s0 + s1) + (s2 + s3);
}

/// total[c] += sum over `count` rows of weight[i] * rows[i][c], for the lane's channels.
template <class T>
CU_INLINE void add_rows(sum_t<T> (&total)[most_columns], const sum_t<T>* weight, const T* rows,
                        std::int64_t stride, int count, int channels, int lane) {
#pragma unroll 1
  for (int i = 0; i < count; ++i, rows += stride) {
    const sum_t<T> w = weight[i];
#pragma unroll
    for (int j = 0; j < most_columns; ++j) {
      if (lane + 32 * j < channels) total[j] += w * load(rows[lane + 32 * j]);
    }
  }
}

template <class A>
CU_INLINE void clear(A (&total)[most_columns]) {
#pragma unroll
  for (int j = 0; j < most_columns; ++j) total[j] = 0;
}

template <class A>
CU_INLINE void add_to(A* to, const A (&total)[most_columns], A factor, int channels, int lane) {
#pragma unroll
  for (int j = 0; j < most_columns; ++j) {
    if (lane + 32 * j < channels) to[lane + 32 * j] += factor * total[j];
  }
}

/// One warp a (row, head), `extra` numbers of shared memory each.
Launch launch_warps(Stream stream, std::int64_t rows, std::int64_t heads, std::int64_t numbers,
                    std::size_t size) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(rows * heads, warps));
  return {dim3(blocks), dim3(32 * warps), static_cast<std::size_t>(warps * numbers) * size, stream};
}

}  // namespace
}  // namespace bdlm::cuda
