// SPDX-License-Identifier: Apache-2.0
// The backward pass of attention_simple.cuh: dq by query row, dkey and dvalue by key row.
#include <cmath>

#include "kernels/cuda/attention_simple.cuh"
#include "kernels/cuda/attention_tiles.h"

namespace bdlm::cuda {
namespace {

/// What both backward kernels make of one pair: p = exp(score - lse), ds = p (dout value - delta).
template <class A>
struct PairGradient {
  A p = 0, ds = 0;

  CU_INLINE void set(A score, A dp, A lse, A delta) {
    p = std::exp(score - lse);
    ds = p * (dp - delta);
  }
};

template <class T>
__global__ void __launch_bounds__(32 * warps, 2)
    simple_backward_query_kernel(const __grid_constant__ AttentionBackward<T> args) {
  using A = sum_t<T>;
  CU_DYNAMIC_SHARED(A, shared);
  const WarpJob job(args.q.rows, args.sizes.heads);
  if (!job.active) return;
  const AttentionSource<T>& source = args.by_query;
  const Interval seen = source.visible[job.row];
  const A lse = args.lse.data[job.row * args.lse.stride + job.head];
  if (seen.lo >= seen.hi || lse == -static_cast<A>(INFINITY)) return;
  const A delta = args.delta.data[job.row * args.delta.stride + job.head];
  const int d = args.sizes.head_dim, lane = job.lane;
  A* const q = shared + job.warp * (2 * d + 32);
  A* const dout = q + d;
  A* const ds = dout + d;
  const std::int64_t column = std::int64_t{job.head} * d;
  const std::int64_t key_column =
      std::int64_t{job.head / (args.sizes.heads / args.sizes.kv_heads)} * d;
  read_row(q, args.q.data + job.row * args.q.stride + column, d, lane);
  read_row(dout, args.dout.data + job.row * args.dout.stride + column, d, lane);
  const A scale = static_cast<A>(args.sizes.scale);
  A total[most_columns];
  clear(total);
  for (int first = seen.lo; first < seen.hi; first += 32) {
    __syncwarp(all_lanes);  // q and dout are there, ds was read
    const std::int64_t key = first + lane;
    PairGradient<A> pair;
    if (key < seen.hi) {
      pair.set(scale * dot(q, source.key.data + key * source.key.stride + key_column, d),
               dot(dout, source.value.data + key * source.value.stride + key_column, d), lse,
               delta);
    }
    ds[lane] = pair.ds;
    __syncwarp(all_lanes);
    const int count = seen.hi - first < 32 ? seen.hi - first : 32;
    add_rows(total, ds, source.key.data + first * source.key.stride + key_column, source.key.stride,
             count, d, lane);
  }
  add_to(args.dq.data + job.row * args.dq.stride + column, total, scale, d, lane);
}

/// The warp's row is a key; it meets the query rows of its schedule, of every head of the group.
template <class T>
__global__ void __launch_bounds__(32 * warps, 2)
    simple_backward_key_kernel(const __grid_constant__ AttentionBackward<T> args) {
  using A = sum_t<T>;
  CU_DYNAMIC_SHARED(A, shared);
  const AttentionSource<T>& source = args.by_key;
  const WarpJob job(source.key.rows, args.sizes.kv_heads);
  if (!job.active) return;
  const int d = args.sizes.head_dim, lane = job.lane;
  const int group = args.sizes.heads / args.sizes.kv_heads;
  A* const key = shared + job.warp * (2 * d + 64);
  A* const value = key + d;
  A* const p = value + d;
  A* const ds = p + 32;
  const std::int64_t key_column = std::int64_t{job.head} * d;
  read_row(key, source.key.data + job.row * source.key.stride + key_column, d, lane);
  read_row(value, source.value.data + job.row * source.value.stride + key_column, d, lane);
  const A scale = static_cast<A>(args.sizes.scale);
  const std::int64_t tile = job.row / simple_tiles.keys;
  A dkey[most_columns], dvalue[most_columns];
  clear(dkey);
  clear(dvalue);
  for (int r = source.tiles.begin[tile]; r < source.tiles.begin[tile + 1]; ++r) {
    const TileRun run = source.tiles.runs[r];
    for (int t = run.first; t < run.last; ++t) {
      const std::int64_t first = std::int64_t{t} * simple_tiles.rows, row = first + lane;
      const bool exists = row < args.q.rows;
      const Interval seen = exists ? source.visible[row] : Interval{};
      const bool sees = seen.lo <= job.row && job.row < seen.hi;
      if (__ballot_sync(all_lanes, sees) == 0) continue;
      const int count =
          static_cast<int>(args.q.rows - first < 32 ? args.q.rows - first : std::int64_t{32});
      for (int head = job.head * group; head < (job.head + 1) * group; ++head) {
        __syncwarp(all_lanes);  // key and value are there, p and ds were read
        const std::int64_t column = std::int64_t{head} * d;
        const A lse = sees ? args.lse.data[row * args.lse.stride + head] : A(0);
        PairGradient<A> pair;
        if (sees && lse != -static_cast<A>(INFINITY)) {
          pair.set(scale * dot(key, args.q.data + row * args.q.stride + column, d),
                   dot(value, args.dout.data + row * args.dout.stride + column, d), lse,
                   args.delta.data[row * args.delta.stride + head]);
        }
        p[lane] = pair.p;
        ds[lane] = pair.ds;
        __syncwarp(all_lanes);
        add_rows(dvalue, p, args.dout.data + first * args.dout.stride + column, args.dout.stride,
                 count, d, lane);
        add_rows(dkey, ds, args.q.data + first * args.q.stride + column, args.q.stride, count, d,
                 lane);
      }
    }
  }
  add_to(args.dkey.data + job.row * args.dkey.stride + key_column, dkey, scale, d, lane);
  add_to(args.dvalue.data + job.row * args.dvalue.stride + key_column, dvalue, A(1), d, lane);
}

}  // namespace

template <class T>
void attention_backward_simple(Stream stream, const AttentionBackward<T>& args) {
  const AttentionSizes& sizes = args.sizes;
  launch("attention_backward_query_simple", simple_backward_query_kernel<T>,
         launch_warps(stream, args.q.rows, sizes.heads, 2 * sizes.head_dim + 32, sizeof(sum_t<T>)),
         args);
  if (args.q.rows == 0) return;  // no schedule
  launch("attention_backward_key_simple", simple_backward_key_kernel<T>,
         launch_warps(stream, args.by_key.key.rows, sizes.kv_heads, 2 * sizes.head_dim + 64,
                      sizeof(sum_t<T>)),
         args);
}

template void attention_backward_simple(Stream, const AttentionBackward<double>&);
template void attention_backward_simple(Stream, const AttentionBackward<float>&);
template void attention_backward_simple(Stream, const AttentionBackward<bfloat16>&);

}  // namespace bdlm::cuda
