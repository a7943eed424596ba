// SPDX-License-Identifier: Apache-2.0
// Tile shapes of the kernels of kernels/cuda/attention_simple_*.cu and attention_mma_*.cu: what they
// are compiled for and what the host makes schedules for. attention_choice.cpp chooses among them.
#pragma once

#include "kernels/cuda/attention_ops.h"

namespace bdlm::cuda {

/// Only dkey and dvalue walk a schedule: a lane of the warp for each query row of a tile.
inline constexpr AttentionTiles simple_tiles{32, 32};

/// mma kernels have 4 warps and are compiled for 64, 128 and 256 channels. The rows of the side
/// that a block owns (queries; keys for backward_key) are 16 or 32 a warp: with 32 each fragment
/// that is read from shared memory serves two products, where registers allow it.
struct MmaTiles {
  AttentionTiles forward, backward_query, backward_key;
};
constexpr MmaTiles mma_tiles(int channels) {
  if (channels == 64) return {{128, 64}, {128, 32}, {64, 64}};
  if (channels == 128) return {{128, 64}, {64, 64}, {32, 64}};
  return {{64, 64}, {64, 32}, {32, 64}};
}

/// The compiled channels that hold head_dim.
constexpr int mma_channels(std::int64_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

}  // namespace bdlm::cuda
