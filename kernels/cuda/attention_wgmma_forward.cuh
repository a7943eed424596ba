// SPDX-License-Identifier: Apache-2.0
// The forward pass on Hopper: its arguments, the running softmax, and how results are merged with
// earlier ones and stored.
#pragma once

#include "kernels/cuda/attention_wgmma.cuh"

namespace bdlm::cuda::hopper {

inline constexpr int forward_keys = 128;
template <int Dim>
using ForwardRoles = Roles<wgmma_tiles(Dim).forward.rows / 64, Dim>;
static_assert(wgmma_tiles(64).forward.keys == forward_keys);
static_assert(wgmma_tiles(128).forward.keys == forward_keys);

struct ForwardArgs {
  TensorMap q;
  TensorMap key[most_sources], value[most_sources];
  const Interval* visible[most_sources];
  TileList tiles[most_sources];
  int sources, heads, group, rows;
  float score_scale;  // of scores as exponents of 2
  bfloat16* out;      // or out_sum
  std::int64_t out_stride;
  bool out_aligned;  // rows begin at multiples of 16 bytes
  PairView out_sum;
  float* lse;
  std::int64_t lse_stride;
  bool resume;
};

/// The running softmax of a thread's two rows: exponents are relative to `largest`, a raw score;
/// `sum` is of this thread's columns.
struct Softmax {
  float largest[2], sum[2];

  CU_INLINE Softmax() {
    for (int h = 0; h < 2; ++h) {
      largest[h] = -infinity();
      sum[h] = 0;
    }
  }
  /// Turns scores into exponentials; `factor`: what earlier ones are to be multiplied by.
  template <int Keys>
  CU_INLINE void add(float (&s)[Keys / 2], float scale, float (&factor)[2]) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float top = largest[h];
#pragma unroll
      for (int i = 0; i < Keys / 8; ++i) {
        top = fmaxf(top, fmaxf(s[4 * i + 2 * h], s[4 * i + 2 * h + 1]));
      }
      top = largest_of_row(top);
      const float base = top == -infinity() ? 0.0f : top * scale;  // nothing seen so far: all 0
      factor[h] = ptx::ex2(largest[h] * scale - base);
      largest[h] = top;
      float total = 0;
#pragma unroll
      for (int i = 0; i < Keys / 8; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float& p = s[4 * i + 2 * h + j];
          p = ptx::ex2(p * scale - base);
          total += p;
        }
      }
      sum[h] = sum[h] * factor[h] + total;
    }
  }
};

/// Normalises 64 rows, merges what they hold already (resume) and stores them. `staging`: this warp
/// group's rows of the query tile, which nobody needs any more.
template <int Dim>
CU_INLINE void store_forward(const ForwardArgs& args, unsigned char* staging,
                             const float (&o)[Dim / 2], const Softmax& softmax, int row0,
                             int head) {
  const int thread = threadIdx.x & 127;
  const Fragment at(thread);
  using Queries = Tile<ForwardRoles<Dim>::rows, Dim>;
  float log_sum[2], weight[2], weight_before[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = row0 + at.first + 8 * h;
    const float sum = sum_of_row(softmax.sum[h]);
    log_sum[h] = sum == 0 ? -infinity() : softmax.largest[h] * args.score_scale + ptx::lg2(sum);
    weight[h] = sum == 0 ? 0.0f : 1.0f / sum;
    weight_before[h] = 0;
    if (args.resume && row < args.rows) {
      const float before = args.lse[row * args.lse_stride + head] * log2_of_e;
      const float base = fmaxf(before, log_sum[h]);
      if (base != -infinity()) {
        const float here = ptx::ex2(log_sum[h] - base), there = ptx::ex2(before - base);
        weight[h] *= here / (here + there);
        weight_before[h] = there / (here + there);
        log_sum[h] = base + ptx::lg2(here + there);
      }
    }
  }
  __syncwarp();  // the four lanes of a row have read its lse
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int line = at.first + 8 * h, row = row0 + line;
#pragma unroll
    for (int i = 0; i < Dim / 8; ++i) {
      const float x = o[4 * i + 2 * h] * weight[h], y = o[4 * i + 2 * h + 1] * weight[h];
      if (args.out != nullptr) {
        *reinterpret_cast<std::uint32_t*>(Queries::piece(staging, line, i) + 2 * at.column) =
            ptx::pack_bf16(x, y);
      } else if (row < args.rows) {
        const int col = head * Dim + 8 * i + at.column;
        const float2 before = args.resume ? args.out_sum.load(row, col) : make_float2(0.0f, 0.0f);
        args.out_sum.store(row, col, x + weight_before[h] * before.x,
                           y + weight_before[h] * before.y);
      }
    }
    if (at.column == 0 && row < args.rows) {
      args.lse[row * args.lse_stride + head] = log_sum[h] * ln_2;
    }
  }
  if (args.out == nullptr) return;
  __syncwarp();  // a warp stages its own 16 rows
  constexpr int pieces = Dim / 8;
  for (int e = thread & 31; e < 16 * pieces; e += 32) {
    const int line = (thread >> 5) * 16 + e / pieces, i = e % pieces, row = row0 + line;
    if (row >= args.rows) continue;
    bfloat16* const to = args.out + row * args.out_stride + head * Dim + 8 * i;
    const unsigned char* const from = Queries::piece(staging, line, i);
    if (args.out_aligned) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    } else {
      for (int c = 0; c < 8; ++c) to[c] = reinterpret_cast<const bfloat16*>(from)[c];
    }
  }
}

}  // namespace bdlm::cuda::hopper
