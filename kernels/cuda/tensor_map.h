// SPDX-License-Identifier: Apache-2.0
// Tensor maps: how the tensor memory accelerator (TMA) finds the heads of a matrix in global
// memory. Made on the host at every launch, passed to kernels by value.
#pragma once

#include <cstdint>

#ifdef BDLM_EMU
#include "kernels/cuda/platform.cuh"
#else
#include <cuda.h>
#endif

#include "kernels/cuda/view.h"

namespace bdlm::cuda {

#ifdef BDLM_EMU
using TensorMap = ptx::TensorMap;
#else
using TensorMap = CUtensorMap;
#endif

/// Channels in one 128-byte row of a swizzled box.
inline constexpr int box_channels = 64;

/// x [rows, heads * head_dim] as (channel, head, row), read in boxes of box_channels channels of
/// one head by `box_rows` rows, 128-byte swizzled. Rows past the end read as zeros. Data and row
/// stride are multiples of 16 bytes, x has a row.
TensorMap map_of_heads(View<const bfloat16> x, std::int64_t head_dim, int box_rows);

}  // namespace bdlm::cuda
