// SPDX-License-Identifier: Apache-2.0
// The forward pass of attention_simple.cuh.
#include <cmath>

#include "kernels/cuda/attention_simple.cuh"
#include "kernels/cuda/attention_tiles.h"

namespace bdlm::cuda {
namespace {

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
  const std::int64_t key_column =
      std::int64_t{job.head / (args.sizes.heads / args.sizes.kv_heads)} * d;
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

}  // namespace

template <class T>
void attention_forward_simple(Stream stream, const AttentionForward<T>& args) {
  const AttentionSizes& sizes = args.sizes;
  launch("attention_forward_simple", simple_forward_kernel<T>,
         launch_warps(stream, args.q.rows, sizes.heads, sizes.head_dim + 32, sizeof(sum_t<T>)),
         args);
}

template void attention_forward_simple(Stream, const AttentionForward<double>&);
template void attention_forward_simple(Stream, const AttentionForward<float>&);
template void attention_forward_simple(Stream, const AttentionForward<bfloat16>&);

}  // namespace bdlm::cuda
