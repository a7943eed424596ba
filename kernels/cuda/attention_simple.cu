// SPDX-License-Identifier: Apache-2.0
// Interval attention without tensor cores: any type, head size and stride. A warp owns one row of
// one head. Its lanes take one row of the other side each, 32 at a time, for the scores, and then
// the channels, for the weighted sum; no sum depends on the order of threads.
#include <cmath>

#include "kernels/cuda/attention_ops.h"
#include "kernels/cuda/attention_tiles.h"
#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/reduce.cuh"

namespace bdlm::cuda {
namespace {

constexpr int warps = 4;         // of a block, independent of each other
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

template <class T>
__global__ void __launch_bounds__(32 * warps, 2)
    simple_forward_kernel(const __grid_constant__ AttentionForward<T> args) {
  using A = sum_t<T>;
  CU_DYNAMIC_SHARED(A, shared);
  const WarpJob job(args.q.rows, args.sizes.heads);
  if (!job.active) return;
  const int d = args.sizes.head_dim, lane = job.lane;
  A* const q = shared + job.warp * (d + 32);
  A* const p = q + d;
  const std::int64_t column = std::int64_t{job.head} * d;
  read_row(q, args.q.data + job.row * args.q.stride + column, d, lane);

  const A infinity = INFINITY;
  A* const lse = args.lse.data + job.row * args.lse.stride + job.head;
  A* const out_sum = args.out_sum.data + job.row * args.out_sum.stride + column;
  A total[most_columns];
  clear(total);
  A top = -infinity, weight = 0;  // weight: the lane's part of the sum of exponentials
  if (args.resume) {
    // A normalised result is one whose largest score is its log-sum-exp and whose sum is 1.
    top = *lse;
    weight = lane == 0 && top != -infinity ? A(1) : A(0);
#pragma unroll
    for (int j = 0; j < most_columns; ++j) {
      if (lane + 32 * j < d) total[j] = out_sum[lane + 32 * j];
    }
  }
  __syncwarp(all_lanes);  // q is there; all lanes have read lse, which one of them writes
  const std::int64_t key_column = std::int64_t{job.head / (args.sizes.heads / args.sizes.kv_heads)} * d;
  for (int s = 0; s < args.source_count; ++s) {
    const AttentionSource<T>& source = args.sources[s];
    const Interval seen = source.visible[job.row];
    for (int first = seen.lo; first < seen.hi; first += 32) {
      const int key = first + lane;
      A score = -infinity;
      if (key < seen.hi) {
        score = static_cast<A>(args.sizes.scale) *
                dot(q, source.key.data + key * source.key.stride + key_column, d);
      }
      const A now = combine_lanes(top > score ? top : score, lanes, Largest());
      const A base = now == -infinity ? A(0) : now;
      const A shrink = std::exp(top - base);
      const A e = key < seen.hi ? std::exp(score - base) : A(0);
      top = now;
      weight = weight * shrink + e;
      p[lane] = e;
      __syncwarp(all_lanes);
#pragma unroll
      for (int j = 0; j < most_columns; ++j) total[j] *= shrink;
      const int count = seen.hi - first < 32 ? seen.hi - first : 32;
      add_rows(total, p, source.value.data + first * source.value.stride + key_column,
               source.value.stride, count, d, lane);
      __syncwarp(all_lanes);  // p is written again
    }
  }
  weight = warp_sum(weight);
  const A inverse = weight == 0 ? A(0) : A(1) / weight;
  T* const out = args.out.data + job.row * args.out.stride + column;
#pragma unroll
  for (int j = 0; j < most_columns; ++j) {
    const int c = lane + 32 * j;
    if (c >= d) continue;
    if (args.out.data != nullptr) {
      store(out[c], total[j] * inverse);
    } else {
      out_sum[c] = total[j] * inverse;
    }
  }
  if (lane == 0) *lse = weight == 0 ? -infinity : top + std::log(weight);
}

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
  const std::int64_t key_column = std::int64_t{job.head / (args.sizes.heads / args.sizes.kv_heads)} * d;
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
               dot(dout, source.value.data + key * source.value.stride + key_column, d), lse, delta);
    }
    ds[lane] = pair.ds;
    __syncwarp(all_lanes);
    const int count = seen.hi - first < 32 ? seen.hi - first : 32;
    add_rows(total, ds, source.key.data + first * source.key.stride + key_column,
             source.key.stride, count, d, lane);
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

/// One warp a (row, head), `extra` numbers of shared memory each.
Launch launch_warps(Stream stream, std::int64_t rows, std::int64_t heads, std::int64_t numbers,
                    std::size_t size) {
  const auto blocks = static_cast<unsigned>(ceil_div<std::int64_t>(rows * heads, warps));
  return {dim3(blocks), dim3(32 * warps), static_cast<std::size_t>(warps * numbers) * size, stream};
}

}  // namespace

template <class T>
void attention_forward_simple(Stream stream, const AttentionForward<T>& args) {
  const AttentionSizes& sizes = args.sizes;
  launch("attention_forward_simple", simple_forward_kernel<T>,
         launch_warps(stream, args.q.rows, sizes.heads, sizes.head_dim + 32, sizeof(sum_t<T>)), args);
}

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

template void attention_forward_simple(Stream, const AttentionForward<double>&);
template void attention_forward_simple(Stream, const AttentionForward<float>&);
template void attention_forward_simple(Stream, const AttentionForward<bfloat16>&);
template void attention_backward_simple(Stream, const AttentionBackward<double>&);
template void attention_backward_simple(Stream, const AttentionBackward<float>&);
template void attention_backward_simple(Stream, const AttentionBackward<bfloat16>&);

}  // namespace bdlm::cuda
