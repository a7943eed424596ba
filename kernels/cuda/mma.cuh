// SPDX-License-Identifier: Apache-2.0
// bfloat16 tiles in shared memory and their products by mma.sync m16n8k16. A warp holds a 16 x 8
// block of sums as 4 numbers a lane: rows lane / 4 and + 8, columns 2 * (lane % 4) and + 1.
#pragma once

#include <cmath>

#include "kernels/cuda/platform.cuh"
#include "kernels/interval.h"

namespace bdlm::cuda::mma {

inline constexpr int warps = 4;
inline constexpr int threads = 32 * warps;

// Exponentials are powers of 2: the instruction's own.
inline constexpr double log2_e_exact = 1.4426950408889634;
inline constexpr float log2_e = static_cast<float>(log2_e_exact), ln_2 = 0.6931471805599453f;

struct Lane {
  int warp, lane, row, col;  // row and col: of its numbers in a block of sums

  CU_INLINE Lane() {
    const int thread = static_cast<int>(threadIdx.x);
    warp = thread / 32;
    lane = thread % 32;
    row = lane / 4;
    col = lane % 4 * 2;
  }
};

/// Where 16-byte unit `unit` of a row lies in a tile of D channels, in elements. The units of a row
/// are permuted so that the eight rows that ldmatrix reads at once lie in different banks.
template <int D>
CU_INLINE int swizzled(int row, int unit) {
  return row * D + ((unit ^ (row & 7)) << 3);
}

/// Copies rows [first, first + Rows) of one head into a tile, asynchronously. `head` points to the
/// head's first channel in row 0; rows and channels that do not exist become zeros.
template <int D, int Rows>
CU_INLINE void load_tile(bfloat16* tile, const bfloat16* head, std::int64_t stride,
                         std::int64_t first, std::int64_t rows, int channels) {
  constexpr int units = D / 8, step = threads / units;
  static_assert(Rows % step == 0);
  const int unit = static_cast<int>(threadIdx.x) % units;
  const int row = static_cast<int>(threadIdx.x) / units;
  const bfloat16* from = head + (first + row) * stride + unit * 8;
  const int left =
      unit * 8 < channels ? static_cast<int>(min(rows - first, std::int64_t{Rows})) : 0;
#pragma unroll
  for (int i = 0; i < Rows; i += step) {
    ptx::cp_async_zfill(tile + swizzled<D>(row + i, unit), from, row + i < left);
    from += step * stride;
  }
}

/// Left operand: rows [row, row + 16), channels [16 k, 16 k + 16) of a tile.
template <int D>
CU_INLINE void load_left(std::uint32_t (&a)[4], const bfloat16* tile, int row, int k, int lane) {
  ptx::ldmatrix_x4(a, tile + swizzled<D>(row + (lane & 15), 2 * k + (lane >> 4)));
}

/// Right operands of two blocks, summed over channels [16 k, 16 k + 16): the blocks' columns are
/// rows [row, row + 16) of a tile.
template <int D>
CU_INLINE void load_right(std::uint32_t (&b)[4], const bfloat16* tile, int row, int k, int lane) {
  const int at = row + (lane >> 4) * 8 + (lane & 7);
  ptx::ldmatrix_x4(b, tile + swizzled<D>(at, 2 * k + ((lane >> 3) & 1)));
}

/// Right operands of two blocks, summed over rows [row, row + 16) of a tile: the blocks' columns
/// are channels [16 pair, 16 pair + 16).
template <int D>
CU_INLINE void load_right_rows(std::uint32_t (&b)[4], const bfloat16* tile, int row, int pair,
                               int lane) {
  ptx::ldmatrix_x4_trans(b, tile + swizzled<D>(row + (lane & 15), 2 * pair + (lane >> 4)));
}

/// Two neighbouring blocks of sums += a b.
CU_INLINE void multiply_pair(float (&c0)[4], float (&c1)[4], const std::uint32_t (&a)[4],
                             const std::uint32_t (&b)[4]) {
  const std::uint32_t b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
  ptx::mma_m16n8k16_bf16(c0, a, b0, c0);
  ptx::mma_m16n8k16_bf16(c1, a, b1, c1);
}

template <int M, int N>
CU_INLINE void clear(float (&c)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
    }
  }
}

/// Left operands that stay in registers, or are read for every product: template argument Kept.
template <int D, int M, bool Kept>
struct LeftRows;

template <int D, int M>
struct LeftRows<D, M, true> {
  std::uint32_t a[M][D / 16][4];

  CU_INLINE void start(const bfloat16* tile, int row, int lane) {
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int k = 0; k < D / 16; ++k) load_left<D>(a[m][k], tile, row + 16 * m, k, lane);
    }
  }
  CU_INLINE void get(std::uint32_t (&to)[4], int m, int k) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = a[m][k][i];
  }
};

template <int D, int M>
struct LeftRows<D, M, false> {
  const bfloat16* tile;
  int row, lane;

  CU_INLINE void start(const bfloat16* t, int r, int l) {
    tile = t;
    row = r;
    lane = l;
  }
  CU_INLINE void get(std::uint32_t (&to)[4], int m, int k) const {
    load_left<D>(to, tile, row + 16 * m, k, lane);
  }
};

/// c [16 M, 8 N] = left right^T, where right's rows are a tile's first 8 N.
template <int D, int M, int N, bool Kept>
CU_INLINE void multiply_transposed(float (&c)[M][N][4], const LeftRows<D, M, Kept>& left,
                                   const bfloat16* right, int lane) {
  clear(c);
  // Unrolled further the compiler reads operands so far ahead that it runs out of registers.
#pragma unroll(Kept ? D / 16 : M == 1 ? 4 : 1)
  for (int k = 0; k < D / 16; ++k) {
    std::uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) left.get(a[m], m, k);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      std::uint32_t b[4];
      load_right<D>(b, right, 8 * n, k, lane);
#pragma unroll
      for (int m = 0; m < M; ++m) multiply_pair(c[m][n], c[m][n + 1], a[m], b);
    }
  }
}

/// Sets the scores of keys that a row does not see to -infinity. `seen`: the intervals of the
/// lane's two rows; `key`: that of its first column.
template <int N>
CU_INLINE void mask_columns(float (&s)[N][4], const Interval (&seen)[2], int key) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int lo = seen[half].lo - key, hi = seen[half].hi - key;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = 8 * n + i;
        if (at < lo || at >= hi) s[n][2 * half + i] = -INFINITY;
      }
    }
  }
}

/// Blocks of sums, rounded to bfloat16: as they lie they are left operands of the next product.
template <int N>
CU_INLINE void to_left(std::uint32_t (&a)[N / 2][4], const float (&c)[N][4]) {
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
    a[k][0] = ptx::pack_bf16(c[2 * k][0], c[2 * k][1]);
    a[k][1] = ptx::pack_bf16(c[2 * k][2], c[2 * k][3]);
    a[k][2] = ptx::pack_bf16(c[2 * k + 1][0], c[2 * k + 1][1]);
    a[k][3] = ptx::pack_bf16(c[2 * k + 1][2], c[2 * k + 1][3]);
  }
}

/// c [16 M, D] += weights [16 M, 16 K] right: sums of the tile's first 16 K rows.
template <int D, int M, int K>
CU_INLINE void add_weighted_rows(float (&c)[M][D / 8][4], const std::uint32_t (&weights)[M][K][4],
                                 const bfloat16* right, int lane) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int pair = 0; pair < D / 16; ++pair) {
      std::uint32_t b[4];
      load_right_rows<D>(b, right, 16 * k, pair, lane);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        multiply_pair(c[m][2 * pair], c[m][2 * pair + 1], weights[m][k], b);
      }
    }
  }
}

}  // namespace bdlm::cuda::mma
