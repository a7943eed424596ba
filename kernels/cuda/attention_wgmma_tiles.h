// SPDX-License-Identifier: Apache-2.0
// Tile shapes of kernels/cuda/attention_wgmma_*.cu, by head_dim 64 or 128: what the kernels are
// compiled for and what the host makes schedules for.
#pragma once

#include "kernels/cuda/attention_ops.h"

namespace bdlm::cuda {

struct WgmmaTiles {
  AttentionTiles forward, backward_query, backward_key;
};
/// The side that a block owns has 64 rows for each of its 2 or 3 computing warp groups; small heads
/// leave registers for a third in the forward pass, which hides more of the softmax, and for more
/// query rows beside the sums of backward_key.
constexpr WgmmaTiles wgmma_tiles(std::int64_t head_dim) {
  if (head_dim == 64) return {{192, 128}, {128, 128}, {96, 128}};
  return {{128, 128}, {128, 128}, {64, 128}};
}

}  // namespace bdlm::cuda
