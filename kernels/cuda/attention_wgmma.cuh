// SPDX-License-Identifier: Apache-2.0
// What the Hopper attention kernels share: roles of warp groups, masks, pairs of outputs.
#pragma once

#include "kernels/cuda/attention_walk.cuh"
#include "kernels/cuda/attention_wgmma_tiles.h"
#include "kernels/cuda/wgmma_tile.cuh"

namespace bdlm::cuda::hopper {

inline constexpr float log2_of_e = 1.4426950408889634f, ln_2 = 0.6931471805599453f;

/// The first warp group of a block loads, Consumers of 64 rows each compute. All start with an even
/// share of the registers; the loading group gives most of its own away.
template <int Consumers, int Dim>
struct Roles {
  static_assert(Consumers == 2 || Consumers == 3);
  static constexpr int consumers = Consumers, threads = 128 * (1 + consumers);
  static constexpr int rows = 64 * consumers;       // of a block
  static constexpr unsigned warps = 4 * consumers;  // that compute
  static constexpr int start_registers = consumers == 2 ? 168 : 128;
  static constexpr int loader_registers = consumers == 3 ? 32 : Dim == 64 ? 40 : 24;
  static constexpr int compute_registers = consumers == 3 ? 160 : Dim == 64 ? 232 : 240;
  static_assert(loader_registers + consumers * compute_registers <=
                (1 + consumers) * start_registers);
};

CU_INLINE float infinity() { return __uint_as_float(0x7f800000u); }

/// Sum or maximum over the four lanes that share a row of accumulators.
CU_INLINE float sum_of_row(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
CU_INLINE float largest_of_row(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

/// Scores [64, Keys] of keys that their row does not see become -infinity. key: of element 0.
template <int Keys>
CU_INLINE void mask_scores(float (&s)[Keys / 2], const Interval (&seen)[2], int key) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int lo = seen[h].lo - key, hi = seen[h].hi - key;
#pragma unroll
    for (int i = 0; i < Keys / 8; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int at = 8 * i + j;
        if (at < lo || at >= hi) s[4 * i + 2 * h + j] = -infinity();
      }
    }
  }
}

/// What a row sees; rows past the end see nothing.
CU_INLINE Interval interval_of(const Interval* visible, int row, int rows) {
  return row < rows ? visible[row] : Interval{0, 0};
}

/// Rows of sums, two columns at a time: in one access where rows are aligned for that.
struct PairView {
  float* data;
  std::int64_t stride;
  bool aligned;

  CU_INLINE float2 load(std::int64_t row, int col) const {
    const float* at = data + row * stride + col;
    return aligned ? *reinterpret_cast<const float2*>(at) : make_float2(at[0], at[1]);
  }
  CU_INLINE void store(std::int64_t row, int col, float x, float y) const {
    float* at = data + row * stride + col;
    if (aligned) {
      *reinterpret_cast<float2*>(at) = make_float2(x, y);
    } else {
      at[0] = x;
      at[1] = y;
    }
  }
};
inline PairView pair_view(View<float> x) {
  const bool aligned = reinterpret_cast<std::uintptr_t>(x.data) % sizeof(float2) == 0;
  return {x.data, x.stride, aligned && x.stride % 2 == 0};
}

/// y[row, column + 8 i] += scale x for the 64 rows from `row0` on, one head's accumulators.
template <int Dim>
CU_INLINE void add_rows(const PairView& y, const float (&x)[Dim / 2], float scale, int row0,
                        int rows, int column) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + 8 * h;
    if (row >= rows) continue;
#pragma unroll
    for (int i = 0; i < Dim / 8; ++i) {
      const float2 old = y.load(row, column + 8 * i);
      y.store(row, column + 8 * i, old.x + scale * x[4 * i + 2 * h],
              old.y + scale * x[4 * i + 2 * h + 1]);
    }
  }
}

}  // namespace bdlm::cuda::hopper
