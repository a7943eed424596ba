// SPDX-License-Identifier: Apache-2.0
// dq of interval attention on mma.sync tensor cores. A block owns a tile of query rows of one head
// and meets the key tiles of its schedule; keys and values come in two stages, so that the next
// tile is on its way during the whole work on this one.
//
// Work of a (query, key) pair of a head: 6 D FLOPs (scores, dp, dq), D the compiled channels.
#include <cmath>

#include "kernels/cuda/attention_mma_backward.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/attention_walk.cuh"
#include "kernels/cuda/float_pairs.cuh"
#include "kernels/cuda/mma.cuh"

namespace bdlm::cuda {
namespace {

struct QueryArgs {
  AttentionBackward<bfloat16> call;
  FloatPairs dq;
  float scale = 0, scale_log2 = 0;
};

/// Of a query row: its log-sum-exp in units of log 2, and delta. A row that has seen no key: all
/// its probabilities become 2^-infinity.
struct RowStatistics {
  float lse = INFINITY, delta = 0;

  CU_INLINE void read(const AttentionBackward<bfloat16>& call, std::int64_t row, int head) {
    const float given = call.lse.data[row * call.lse.stride + head];
    if (given == -INFINITY) return;
    lse = given * mma::log2_e;
    delta = call.delta.data[row * call.delta.stride + head];
  }
};

template <int D, int Rows, int Keys, bool Kept>
__global__ void __launch_bounds__(mma::threads, 2)
    mma_backward_query_kernel(const __grid_constant__ QueryArgs args) {
  constexpr int M = Rows / (16 * mma::warps), N = Keys / 8, C = D / 8;
  const AttentionBackward<bfloat16>& call = args.call;
  const AttentionSource<bfloat16>& source = call.by_query;
  CU_DYNAMIC_SHARED(bfloat16, shared);
  bfloat16* const q_tile = shared;
  bfloat16* const dout_tile = q_tile + Rows * D;
  bfloat16* const stages = Kept ? shared : dout_tile + Rows * D;  // [2][keys, values]

  const mma::Lane lane;
  const int d = call.sizes.head_dim, heads = call.sizes.heads;
  const int head = static_cast<int>(blockIdx.x) % heads;
  const int tile = ordered_tile(source.tiles, static_cast<int>(blockIdx.x) / heads);
  const int column = head * d, key_column = head / (heads / call.sizes.kv_heads) * d;
  const std::int64_t first = std::int64_t{tile} * Rows;
  const int left = static_cast<int>(min(call.q.rows - first, std::int64_t{Rows}));
  const int warp_row = 16 * M * lane.warp, lane_row = warp_row + lane.row;

  TileWalk walk(&source.tiles, 1, tile);
  if (!walk.next()) return;
  mma::load_tile<D, Rows>(q_tile, call.q.data + column, call.q.stride, first, call.q.rows, d);
  mma::load_tile<D, Rows>(dout_tile, call.dout.data + column, call.dout.stride, first, call.q.rows,
                          d);
  ptx::cp_async_commit();
  RowStatistics statistics[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane_row + 16 * m + 8 * half;
      if (row < left) statistics[m][half].read(call, first + row, head);
    }
  }
  float dq[M][C][4];
  mma::clear(dq);
  ptx::cp_async_wait<0>();
  __syncthreads();
  mma::LeftRows<D, M, Kept> q, dout;
  q.start(q_tile, warp_row, lane.lane);
  dout.start(dout_tile, warp_row, lane.lane);
  if (Kept) __syncthreads();  // the stages lie over these tiles

  const auto load_stage = [&](int stage) {
    bfloat16* const key_tile = stages + stage * (2 * Keys * D);
    const std::int64_t first_key = std::int64_t{walk.tile} * Keys;
    mma::load_tile<D, Keys>(key_tile, source.key.data + key_column, source.key.stride, first_key,
                            source.key.rows, d);
    mma::load_tile<D, Keys>(key_tile + Keys * D, source.value.data + key_column,
                            source.value.stride, first_key, source.key.rows, d);
  };
  load_stage(0);
  ptx::cp_async_commit();
  int stage = 0;
  bool more = true;
  while (more) {
    const int first_key = walk.tile * Keys;
    const bool masked = walk.masked != 0;
    more = walk.next();
    ptx::cp_async_wait<0>();  // this stage
    __syncthreads();          // ... of all threads, and nobody reads the other one any more
    if (more) load_stage(stage ^ 1);
    ptx::cp_async_commit();
    const bfloat16* const key_tile = stages + stage * (2 * Keys * D);
    stage ^= 1;

    float s[M][N][4], dp[M][N][4];
    mma::multiply_transposed<D, M, N>(s, q, key_tile, lane.lane);
    if (masked) {
#pragma unroll
      for (int m = 0; m < M; ++m) {
        Interval seen[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = lane_row + 16 * m + 8 * half;
          if (row < left) seen[half] = source.visible[first + row];
        }
        mma::mask_columns(s[m], seen, first_key + lane.col);
      }
    }
    mma::multiply_transposed<D, M, N>(dp, dout, key_tile + Keys * D, lane.lane);
    std::uint32_t ds[M][N / 2][4];
#pragma unroll
    for (int m = 0; m < M; ++m) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const RowStatistics& row = statistics[m][i / 2];
          const float p = ptx::ex2(s[m][n][i] * args.scale_log2 - row.lse);
          s[m][n][i] = p * (dp[m][n][i] - row.delta);
        }
      }
      mma::to_left(ds[m], s[m]);
    }
    mma::add_weighted_rows<D, M>(dq, ds, key_tile, lane.lane);
  }

#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane_row + 16 * m + 8 * half;
      if (row >= left) continue;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        if (8 * c >= d) continue;
        args.dq.add(first + row, column + 8 * c + lane.col, args.scale * dq[m][c][2 * half],
                    args.scale * dq[m][c][2 * half + 1]);
      }
    }
  }
}

template <int D>
void launch_query(Stream stream, const AttentionBackward<bfloat16>& call) {
  constexpr AttentionTiles shape = mma_tiles(D).backward_query;
  constexpr bool kept = D <= 128;
  constexpr std::size_t owned = 2 * shape.rows * D, stages = 4 * shape.keys * D;
  constexpr std::size_t elements = !kept ? owned + stages : owned > stages ? owned : stages;
  const QueryArgs args{call, FloatPairs(call.dq), static_cast<float>(call.sizes.scale),
                       static_cast<float>(call.sizes.scale * mma::log2_e_exact)};
  const std::int64_t tiles = ceil_div<std::int64_t>(call.q.rows, shape.rows);
  launch("attention_backward_query_mma", mma_backward_query_kernel<D, shape.rows, shape.keys, kept>,
         Launch{dim3(static_cast<unsigned>(tiles * call.sizes.heads)), dim3(mma::threads),
                elements * sizeof(bfloat16), stream},
         args);
}

}  // namespace

void attention_backward_query_mma(Stream stream, const AttentionBackward<bfloat16>& call) {
  switch (mma_channels(call.sizes.head_dim)) {
    case 64:
      return launch_query<64>(stream, call);
    case 128:
      return launch_query<128>(stream, call);
    default:
      return launch_query<256>(stream, call);
  }
}

void attention_backward_mma(Stream stream, const AttentionBackward<bfloat16>& call) {
  if (call.q.rows == 0 || call.by_query.key.rows == 0) return;  // no schedule
  attention_backward_query_mma(stream, call);
  attention_backward_key_mma(stream, call);
}

}  // namespace bdlm::cuda
