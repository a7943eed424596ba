// SPDX-License-Identifier: Apache-2.0
// Interval attention forward on mma.sync tensor cores, after FlashAttention-2 (arXiv 2307.08691): a
// block owns a tile of query rows of one head and meets the key tiles of its schedule. Keys of the
// next tile are on their way while this tile's values are summed, and the other way round, so that
// one buffer of each suffices and two blocks fit on a processor.
//
// Work of a (query, key) pair of a head: 4 D FLOPs, D the compiled channels.
#include <cmath>

#include "kernels/cuda/attention_ops.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/attention_walk.cuh"
#include "kernels/cuda/float_pairs.cuh"
#include "kernels/cuda/mma.cuh"

namespace bdlm::cuda {
namespace {

constexpr unsigned quad_lanes = 0xffffffffu;

struct ForwardArgs {
  AttentionForward<bfloat16> call;
  TileList lists[most_sources];
  FloatPairs out_sum;
  int order = 0;  // the source whose order blocks take
  float scale_log2 = 0;
};

/// Of a row: the largest score so far (in units of log 2), and this lane's part of the sum of
/// exponentials relative to it.
struct RowSums {
  float top = -INFINITY, sum = 0;
};

/// Scores become probabilities relative to the new top; what was summed before shrinks to it. Rows
/// lie in quads of lanes.
template <int N, int C>
CU_INLINE void online_softmax(float (&s)[N][4], RowSums (&rows)[2], float (&out)[C][4],
                              float scale_log2) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float largest = -INFINITY;
#pragma unroll
    for (int n = 0; n < N; ++n) {
      largest = fmaxf(largest, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    }
    largest = fmaxf(largest, __shfl_xor_sync(quad_lanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(quad_lanes, largest, 2));
    const float top = fmaxf(rows[half].top, largest * scale_log2);
    const float base = top == -INFINITY ? 0.f : top;  // nothing seen yet: all probabilities are 0
    const float shrink = ptx::ex2(rows[half].top - base);
    rows[half].top = top;
    float sum = 0;
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        s[n][i] = ptx::ex2(s[n][i] * scale_log2 - base);
        sum += s[n][i];
      }
    }
    rows[half].sum = rows[half].sum * shrink + sum;
#pragma unroll
    for (int c = 0; c < C; ++c) {
      out[c][2 * half] *= shrink;
      out[c][2 * half + 1] *= shrink;
    }
  }
}

template <int D, int Rows, int Keys>
__global__ void __launch_bounds__(mma::threads, 2)
    mma_forward_kernel(const __grid_constant__ ForwardArgs args) {
  constexpr int M = Rows / (16 * mma::warps), N = Keys / 8, C = D / 8;
  constexpr bool keep_q = D == 64;
  const AttentionForward<bfloat16>& call = args.call;
  CU_DYNAMIC_SHARED(bfloat16, shared);
  bfloat16* const q_tile = shared;  // later the output
  bfloat16* const key_tile = q_tile + Rows * D;
  bfloat16* const value_tile = key_tile + Keys * D;

  const mma::Lane lane;
  const int d = call.sizes.head_dim, heads = call.sizes.heads;
  const int head = static_cast<int>(blockIdx.x) % heads;
  const int tile = ordered_tile(args.lists[args.order], static_cast<int>(blockIdx.x) / heads);
  const int column = head * d, key_column = head / (heads / call.sizes.kv_heads) * d;
  const std::int64_t first = std::int64_t{tile} * Rows;
  const int left = static_cast<int>(min(call.q.rows - first, std::int64_t{Rows}));
  const int warp_row = 16 * M * lane.warp, lane_row = warp_row + lane.row;  // of the tile

  TileWalk walk(args.lists, call.source_count, tile);
  bool more = walk.next();
  if (!more && call.resume) return;

  float out[M][C][4];
  RowSums sums[M][2];
  mma::clear(out);
  if (call.resume) {
    // A normalised result is one whose top is its log-sum-exp and whose sum is 1.
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = lane_row + 16 * m + 8 * half;
        if (row >= left) continue;
        RowSums& s = sums[m][half];
        s.top = call.lse.data[(first + row) * call.lse.stride + head] * mma::log2_e;
        if (lane.col == 0 && s.top != -INFINITY) s.sum = 1;
#pragma unroll
        for (int c = 0; c < C; ++c) {
          if (8 * c >= d) continue;
          const float2 pair = args.out_sum.get(first + row, column + 8 * c + lane.col);
          out[m][c][2 * half] = pair.x;
          out[m][c][2 * half + 1] = pair.y;
        }
      }
    }
  }

  const auto load_key = [&] {
    const View<const bfloat16>& key = call.sources[walk.source].key;
    mma::load_tile<D, Keys>(key_tile, key.data + key_column, key.stride,
                            std::int64_t{walk.tile} * Keys, key.rows, d);
  };
  mma::LeftRows<D, M, keep_q> q;
  if (more) {
    mma::load_tile<D, Rows>(q_tile, call.q.data + column, call.q.stride, first, call.q.rows, d);
    load_key();
    ptx::cp_async_commit();
    ptx::cp_async_wait<0>();
    __syncthreads();
    q.start(q_tile, warp_row, lane.lane);
  }
  while (more) {
    const View<const bfloat16>& value = call.sources[walk.source].value;
    const int first_key = walk.tile * Keys;
    ptx::cp_async_wait<0>();  // these keys
    __syncthreads();          // ... of all threads, and nobody reads the last values any more
    mma::load_tile<D, Keys>(value_tile, value.data + key_column, value.stride, first_key,
                            value.rows, d);
    ptx::cp_async_commit();

    float s[M][N][4];
    mma::multiply_transposed<D, M, N>(s, q, key_tile, lane.lane);
    if (walk.masked) {
      const Interval* const visible = call.sources[walk.source].visible + first;
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Interval seen[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = lane_row + 16 * m + 8 * half;
          if (row < left) seen[half] = visible[row];
        }
        mma::mask_columns(s[m], seen, first_key + lane.col);
      }
    }
#pragma unroll
    for (int m = 0; m < M; ++m) online_softmax(s[m], sums[m], out[m], args.scale_log2);
    std::uint32_t p[M][N / 2][4];
#pragma unroll
    for (int m = 0; m < M; ++m) mma::to_left(p[m], s[m]);

    more = walk.next();
    ptx::cp_async_wait<0>();  // these values
    __syncthreads();          // ... and nobody reads these keys any more
    if (more) load_key();
    ptx::cp_async_commit();
    mma::add_weighted_rows<D, M>(out, p, value_tile, lane.lane);
  }

#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const RowSums& r = sums[m][half];
      float sum = r.sum;
      sum += __shfl_xor_sync(quad_lanes, sum, 1);
      sum += __shfl_xor_sync(quad_lanes, sum, 2);
      const float inverse = sum == 0 ? 0.f : 1.f / sum;
      const int row = lane_row + 16 * m + 8 * half;
      if (row < left && lane.col == 0) {
        call.lse.data[(first + row) * call.lse.stride + head] =
            sum == 0 ? -INFINITY : (r.top + ptx::lg2(sum)) * mma::ln_2;
      }
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const float x = out[m][c][2 * half] * inverse, y = out[m][c][2 * half + 1] * inverse;
        if (call.out.data != nullptr) {
          // A warp writes over the query rows that it alone reads.
          *reinterpret_cast<std::uint32_t*>(q_tile + mma::swizzled<D>(row, c) + lane.col) =
              ptx::pack_bf16(x, y);
        } else if (row < left && 8 * c < d) {
          args.out_sum.set(first + row, column + 8 * c + lane.col, x, y);
        }
      }
    }
  }
  if (call.out.data == nullptr) return;
  __syncwarp(quad_lanes);
#pragma unroll
  for (int i = 0; i < 16 * M * C; i += 32) {
    const int row = warp_row + (i + lane.lane) / C, unit = (i + lane.lane) % C;
    if (row >= left || 8 * unit >= d) continue;
    *reinterpret_cast<uint4*>(call.out.data + (first + row) * call.out.stride + column + 8 * unit) =
        *reinterpret_cast<const uint4*>(q_tile + mma::swizzled<D>(row, unit));
  }
}

template <int D>
void launch_forward(Stream stream, const AttentionForward<bfloat16>& call) {
  constexpr AttentionTiles shape = mma_tiles(D).forward;
  ForwardArgs args;
  args.call = call;
  args.out_sum = FloatPairs(call.out_sum);
  args.scale_log2 = static_cast<float>(call.sizes.scale * mma::log2_e_exact);
  for (int s = 0; s < call.source_count; ++s) {
    args.lists[s] = call.sources[s].tiles;
    if (call.sources[s].key.rows > call.sources[args.order].key.rows) args.order = s;
  }
  const std::int64_t tiles = ceil_div<std::int64_t>(call.q.rows, shape.rows);
  constexpr std::size_t bytes = (shape.rows + 2 * shape.keys) * D * sizeof(bfloat16);
  launch("attention_forward_mma", mma_forward_kernel<D, shape.rows, shape.keys>,
         Launch{dim3(static_cast<unsigned>(tiles * call.sizes.heads)), dim3(mma::threads), bytes,
                stream},
         args);
}

}  // namespace

void attention_forward_mma(Stream stream, const AttentionForward<bfloat16>& call) {
  switch (mma_channels(call.sizes.head_dim)) {
    case 64:
      return launch_forward<64>(stream, call);
    case 128:
      return launch_forward<128>(stream, call);
    default:
      return launch_forward<256>(stream, call);
  }
}

}  // namespace bdlm::cuda
