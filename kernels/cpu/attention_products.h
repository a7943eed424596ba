// SPDX-License-Identifier: Apache-2.0
// The products of attention's tiles. Scores are kept transposed, [keys][lanes]: a lane is a query,
// so that softmax works on whole vectors without a sum across one. Both classes (this one and the
// one in attention_amx.h) give the same set of functions over their own operand formats:
//
//   scores   c[keys][lanes]     = K [keys][channels]    Q^T [channels][lanes]
//   outputs  c[channels][lanes] += V^T [channels][keys]  P [keys][lanes]
//   sums     c[keys][channels]  += P [keys][lanes]       Q [lanes][channels]
//
// A panel is `lanes` queries of one head. Row counts may be rounded up to `row_step`: tiles carry
// that many spare rows.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/attention_vectors.h"

namespace bdlm::attention {

constexpr std::int64_t round_up(std::int64_t n, std::int64_t step) {
  return (n + step - 1) / step * step;
}

/// c[m][n] (+)= a[m][depth] b[depth][n] in blocks of 8 x 2 vectors: 16 sums hide the latency of the
/// multiply-add, and ten loads feed them. `columns`: a is stored [depth][m].
template <bool columns, class A>
inline void multiply(const A* __restrict a, std::int64_t lda, const A* __restrict b,
                     std::int64_t ldb, A* __restrict c, std::int64_t ldc, std::int64_t m,
                     std::int64_t n, std::int64_t depth, bool accumulate) {
  constexpr int rows = 8, vectors = 2, w = width<A>;
  for (std::int64_t j = 0; j < n; j += vectors * w) {
    for (std::int64_t i = 0; i < m; i += rows) {
      Vector<A> sum[rows][vectors] = {};
      A* to = c + i * ldc + j;
      if (accumulate) {
        for (int r = 0; r < rows; ++r) {
          for (int v = 0; v < vectors; ++v) sum[r][v] = vector_at(to + r * ldc + v * w);
        }
      }
      const A* left = columns ? a + i : a + i * lda;
      const A* right = b + j;
      for (std::int64_t p = 0; p < depth; ++p) {
        const Vector<A> x = vector_at(right), y = vector_at(right + w);
        for (int r = 0; r < rows; ++r) {
          const A factor = columns ? left[r] : left[r * lda];
          sum[r][0] += factor * x;
          sum[r][1] += factor * y;
        }
        left += columns ? lda : 1;
        right += ldb;
      }
      for (int r = 0; r < rows; ++r) {
        for (int v = 0; v < vectors; ++v) vector_at(to + r * ldc + v * w) = sum[r][v];
      }
    }
  }
}

/// The channels of a head, and how many of them tiles have (the rest is zero).
struct Channels {
  std::int64_t used = 0;
  std::int64_t padded = 0;
};

/// In vectors of A. Operands are plain matrices of A, so that most need no copy.
template <class A>
struct VectorProducts {
  using Sum = A;
  using Operand = A;
  static constexpr Precision precision = Precision::full;
  static constexpr int lanes = 2 * width<A>;
  static constexpr int row_step = 8;
  static constexpr int channel_step = lanes > row_step ? lanes : row_step;  // columns and rows
  static constexpr int key_tile = 64;
  /// Of a query tile: enough that packing a key tile is small beside its products, few enough that
  /// their operands stay in the second-level cache.
  static constexpr int panels = 8;
  /// Whether operands are copies, written to the last argument of the functions that make them.
  static constexpr bool copies = false;

  struct Session {};  // what a thread holds while it multiplies

  /// rows [lanes][channels] of one panel, as the right operand of scores and of sums.
  static const A* query_columns(const A* rows, Channels d, A* to) {
    transpose(rows, d.padded, lanes, d.padded, to, lanes);
    return to;
  }
  static const A* query_rows(const A* rows, Channels, A*) { return rows; }
  /// keys [count][channels] as the left operand of outputs.
  static const A* key_columns(const A* keys, std::int64_t, Channels, A*) { return keys; }
  /// scores [count][lanes] as the right operand of outputs and as the left operand of sums.
  static const A* score_pairs(A* scores, std::int64_t, A*) { return scores; }
  static const A* score_rows(A* scores, std::int64_t count, A*) {
    std::fill(scores + count * lanes, scores + round_up(count, row_step) * lanes, A{0});
    return scores;
  }

  static void scores(const A* keys, const A* query_columns, Channels d, std::int64_t count, A* c) {
    multiply<false>(keys, d.padded, query_columns, lanes, c, lanes, count, lanes, d.used, false);
  }
  /// The keys from `first` of the tile on.
  static void outputs(const A* key_columns, std::int64_t first, Channels d, const A* scores,
                      std::int64_t count, A* c) {
    multiply<true>(key_columns + first * d.padded, d.padded, scores, lanes, c, lanes, d.used, lanes,
                   count, true);
  }
  /// The scores of the panels lie `stride` apart, their query rows follow one another.
  static void sums(const A* scores, std::int64_t stride, const A* query_rows, std::int64_t panels,
                   Channels d, std::int64_t count, A* c) {
    for (std::int64_t p = 0; p < panels; ++p) {
      multiply<false>(scores + p * stride, lanes, query_rows + p * lanes * d.padded, d.padded, c,
                      d.padded, count, d.padded, lanes, true);
    }
  }
};

}  // namespace bdlm::attention
