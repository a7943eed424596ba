// SPDX-License-Identifier: Apache-2.0
// dkey and dvalue of interval attention on mma.sync tensor cores. A block owns a tile of keys of
// one key head and meets the query tiles of its schedule, of every query head of the group: nobody
// else adds to its rows. Scores are made transposed, [keys, queries], so that probabilities are
// left operands of the products that follow without leaving their lanes.
//
// Work of a (query, key) pair of a query head: 8 D FLOPs (scores, dp, dvalue, dkey), D the compiled
// channels. 256 channels have too many sums for one kernel: dvalue and dkey apart, 10 D FLOPs.
#include <cmath>

#include "kernels/cuda/attention_mma_backward.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/attention_walk.cuh"
#include "kernels/cuda/float_pairs.cuh"
#include "kernels/cuda/mma.cuh"

namespace bdlm::cuda {
namespace {

struct KeyArgs {
  AttentionBackward<bfloat16> call;
  FloatPairs dkey, dvalue;
  float scale = 0, scale_log2 = 0;
};

enum class Sums : std::uint8_t { both, dvalue, dkey };

/// One stage: a tile of queries of one head, and what belongs to its rows.
template <int D, int Rows>
struct QueryStage {
  bfloat16 q[Rows * D], dout[Rows * D];
  float lse[Rows], delta[Rows];
  std::int32_t seen[2 * Rows];  // intervals; loaded for masked tiles only

  CU_INLINE void load(const AttentionBackward<bfloat16>& call, int head, int tile, bool masked) {
    const int d = call.sizes.head_dim, thread = static_cast<int>(threadIdx.x);
    const std::int64_t first = std::int64_t{tile} * Rows, rows = call.q.rows;
    const int left = static_cast<int>(min(rows - first, std::int64_t{Rows}));
    mma::load_tile<D, Rows>(q, call.q.data + head * d, call.q.stride, first, rows, d);
    mma::load_tile<D, Rows>(dout, call.dout.data + head * d, call.dout.stride, first, rows, d);
    for (int row = thread; row < Rows; row += mma::threads) {
      ptx::cp_async_zfill<4>(lse + row, call.lse.data + (first + row) * call.lse.stride + head,
                             row < left);
      ptx::cp_async_zfill<4>(
          delta + row, call.delta.data + (first + row) * call.delta.stride + head, row < left);
    }
    if (!masked) return;
    const auto* const visible = reinterpret_cast<const std::int32_t*>(call.by_key.visible + first);
    for (int i = thread; i < 2 * Rows; i += mma::threads) {
      ptx::cp_async_zfill<4>(seen + i, visible + i, i < 2 * left);
    }
  }
};

/// The block's way: its schedule once for every query head of the group.
struct GroupWalk {
  TileWalk walk;
  const TileList& tiles;
  int own, head, last_head;

  CU_INLINE GroupWalk(const TileList& list, int tile, int first_head, int group)
      : walk(&list, 1, tile),
        tiles(list),
        own(tile),
        head(first_head),
        last_head(first_head + group - 1) {}
  CU_INLINE bool next() {
    if (walk.next()) return true;
    if (head == last_head) return false;
    ++head;
    walk = TileWalk(&tiles, 1, own);
    return walk.next();
  }
};

template <int D, int Rows, int Keys, Sums sums, bool Kept>
__global__ void __launch_bounds__(mma::threads, 2)
    mma_backward_key_kernel(const __grid_constant__ KeyArgs args) {
  constexpr int M = Keys / (16 * mma::warps), N = Rows / 8, C = D / 8;
  constexpr bool with_dkey = sums != Sums::dvalue, with_dvalue = sums != Sums::dkey;
  using Stage = QueryStage<D, Rows>;
  const AttentionBackward<bfloat16>& call = args.call;
  const AttentionSource<bfloat16>& source = call.by_key;
  CU_DYNAMIC_SHARED(bfloat16, shared);
  bfloat16* const key_tile = shared;
  bfloat16* const value_tile = key_tile + Keys * D;
  Stage* const stages = reinterpret_cast<Stage*>(value_tile + Keys * D);

  const mma::Lane lane;
  const int d = call.sizes.head_dim, kv_heads = call.sizes.kv_heads;
  const int group = call.sizes.heads / kv_heads;
  const int kv_head = static_cast<int>(blockIdx.x) % kv_heads;
  const int tile = ordered_tile(source.tiles, static_cast<int>(blockIdx.x) / kv_heads);
  const int column = kv_head * d, first = tile * Keys;
  const int warp_row = 16 * M * lane.warp, lane_row = warp_row + lane.row;

  GroupWalk way(source.tiles, tile, kv_head * group, group);
  if (!way.next()) return;
  mma::load_tile<D, Keys>(key_tile, source.key.data + column, source.key.stride, first,
                          source.key.rows, d);
  if (with_dkey) {
    mma::load_tile<D, Keys>(value_tile, source.value.data + column, source.value.stride, first,
                            source.key.rows, d);
  }
  stages[0].load(call, way.head, way.walk.tile, way.walk.masked != 0);
  ptx::cp_async_commit();
  float dkey[with_dkey ? M : 1][C][4], dvalue[with_dvalue ? M : 1][C][4];
  mma::clear(dkey);
  mma::clear(dvalue);
  mma::LeftRows<D, M, Kept> key, value;
  ptx::cp_async_wait<0>();
  __syncthreads();
  key.start(key_tile, warp_row, lane.lane);
  if (with_dkey) value.start(value_tile, warp_row, lane.lane);

  int at = 0;
  bool more = true;
  while (more) {
    const bool masked = way.walk.masked != 0;
    more = way.next();
    ptx::cp_async_wait<0>();  // this stage
    __syncthreads();          // ... of all threads, and nobody reads the other one any more
    if (more) stages[at ^ 1].load(call, way.head, way.walk.tile, way.walk.masked != 0);
    ptx::cp_async_commit();
    const Stage& stage = stages[at];
    at ^= 1;

    float p[M][N][4];
    mma::multiply_transposed<D, M, N>(p, key, stage.q, lane.lane);
    if (masked) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int query = 8 * n + lane.col + i;
          const int lo = stage.seen[2 * query] - first - lane_row;
          const int hi = stage.seen[2 * query + 1] - first - lane_row;
#pragma unroll
          for (int m = 0; m < M; ++m) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
              const int row = 16 * m + 8 * half;
              if (row < lo || row >= hi) p[m][n][2 * half + i] = -INFINITY;
            }
          }
        }
      }
    }
#pragma unroll
    for (int n = 0; n < N; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float given = stage.lse[8 * n + lane.col + i];
        const float lse = given == -INFINITY ? INFINITY : given * mma::log2_e;
#pragma unroll
        for (int m = 0; m < M; ++m) {
#pragma unroll
          for (int j = i; j < 4; j += 2) {
            p[m][n][j] = ptx::ex2(p[m][n][j] * args.scale_log2 - lse);
          }
        }
      }
    }
    if constexpr (with_dvalue) {
      std::uint32_t left[M][N / 2][4];
#pragma unroll
      for (int m = 0; m < M; ++m) mma::to_left(left[m], p[m]);
      mma::add_weighted_rows<D, M>(dvalue, left, stage.dout, lane.lane);
    }
    if constexpr (with_dkey) {
      float dp[M][N][4];
      mma::multiply_transposed<D, M, N>(dp, value, stage.dout, lane.lane);
#pragma unroll
      for (int n = 0; n < N; ++n) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int query = 8 * n + lane.col + i;
          const float delta = stage.lse[query] == -INFINITY ? 0.f : stage.delta[query];
#pragma unroll
          for (int m = 0; m < M; ++m) {
#pragma unroll
            for (int j = i; j < 4; j += 2) p[m][n][j] *= dp[m][n][j] - delta;
          }
        }
      }
      std::uint32_t left[M][N / 2][4];
#pragma unroll
      for (int m = 0; m < M; ++m) mma::to_left(left[m], p[m]);
      mma::add_weighted_rows<D, M>(dkey, left, stage.q, lane.lane);
    }
  }

#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int64_t row = std::int64_t{first} + lane_row + 16 * m + 8 * half;
      if (row >= source.key.rows) continue;
#pragma unroll
      for (int c = 0; c < C; ++c) {
        const int col = column + 8 * c + lane.col;
        if (8 * c >= d) continue;
        if constexpr (with_dkey) {
          args.dkey.add(row, col, args.scale * dkey[m][c][2 * half],
                        args.scale * dkey[m][c][2 * half + 1]);
        }
        if constexpr (with_dvalue) {
          args.dvalue.add(row, col, dvalue[m][c][2 * half], dvalue[m][c][2 * half + 1]);
        }
      }
    }
  }
}

template <int D, Sums sums>
void launch_key(Stream stream, const AttentionBackward<bfloat16>& call) {
  constexpr AttentionTiles shape = mma_tiles(D).backward_key;
  const KeyArgs args{call, FloatPairs(call.dkey), FloatPairs(call.dvalue),
                     static_cast<float>(call.sizes.scale),
                     static_cast<float>(call.sizes.scale * mma::log2_e_exact)};
  const std::int64_t tiles = ceil_div<std::int64_t>(call.by_key.key.rows, shape.keys);
  constexpr std::size_t bytes =
      2 * shape.keys * D * sizeof(bfloat16) + 2 * sizeof(QueryStage<D, shape.rows>);
  launch("attention_backward_key_mma",
         mma_backward_key_kernel<D, shape.rows, shape.keys, sums, D == 64>,
         Launch{dim3(static_cast<unsigned>(tiles * call.sizes.kv_heads)), dim3(mma::threads), bytes,
                stream},
         args);
}

}  // namespace

void attention_backward_key_mma(Stream stream, const AttentionBackward<bfloat16>& call) {
  switch (mma_channels(call.sizes.head_dim)) {
    case 64:
      return launch_key<64, Sums::both>(stream, call);
    case 128:
      return launch_key<128, Sums::both>(stream, call);
    default:
      launch_key<256, Sums::dvalue>(stream, call);
      return launch_key<256, Sums::dkey>(stream, call);
  }
}

}  // namespace bdlm::cuda
