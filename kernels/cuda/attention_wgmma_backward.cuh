// SPDX-License-Identifier: Apache-2.0
// What the two backward kernels on Hopper share. One goes by tiles of keys (dkey, dvalue) and one
// by tiles of query rows (dq): scores are computed twice, but every sum has one owner and a fixed
// order, so that results are the same to the bit without atomics.
#pragma once

#include "kernels/cuda/attention_wgmma.cuh"

namespace bdlm::cuda::hopper {

inline constexpr int backward_keys = 128;
template <int Dim>
using BackwardRoles = Roles<2, Dim>;

struct BackwardArgs {
  TensorMap q, dout, key, value;
  const Interval* visible;
  TileList tiles;
  int heads, group, rows, keys;
  float score_scale;  // of scores as exponents of 2
  float scale;
  const float *lse, *delta;
  std::int64_t lse_stride, delta_stride;
  PairView dq, dkey, dvalue;
};

inline BackwardArgs backward_args(const AttentionBackward<bfloat16>& from,
                                  const AttentionSource<bfloat16>& source, int box_rows) {
  const std::int64_t dim = from.sizes.head_dim;
  BackwardArgs args = {};
  args.q = map_of_heads(from.q, dim, box_rows);
  args.dout = map_of_heads(from.dout, dim, box_rows);
  args.key = map_of_heads(source.key, dim, backward_keys);
  args.value = map_of_heads(source.value, dim, backward_keys);
  args.visible = source.visible;
  args.tiles = source.tiles;
  args.heads = from.sizes.heads;
  args.group = from.sizes.heads / from.sizes.kv_heads;
  args.rows = static_cast<int>(from.q.rows);
  args.keys = static_cast<int>(source.key.rows);
  args.score_scale = static_cast<float>(from.sizes.scale * 1.4426950408889634);
  args.scale = static_cast<float>(from.sizes.scale);
  args.lse = from.lse.data;
  args.lse_stride = from.lse.stride;
  args.delta = from.delta.data;
  args.delta_stride = from.delta.stride;
  args.dq = pair_view(from.dq);
  args.dkey = pair_view(from.dkey);
  args.dvalue = pair_view(from.dvalue);
  return args;
}

/// What the gradient needs of a query row: a probability is exp2(score - base), its gradient
/// probability * (dp - delta).
struct RowSums {
  float base, delta;
};

/// Rows that have seen no key, and rows past the end, have probabilities of 0.
CU_INLINE RowSums row_sums(const BackwardArgs& args, int row, int head) {
  if (row >= args.rows) return {infinity(), 0};
  const float lse = args.lse[row * args.lse_stride + head];
  if (lse == -infinity()) return {infinity(), 0};
  return {lse * log2_of_e, args.delta[row * args.delta_stride + head]};
}

/// dq += of one source (attention_wgmma_backward_query.cu).
void launch_backward_query(Stream stream, const AttentionBackward<bfloat16>& args);

}  // namespace bdlm::cuda::hopper
