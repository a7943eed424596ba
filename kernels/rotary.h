// SPDX-License-Identifier: Apache-2.0
// Arguments of the fused per-head step between a projection and attention: optional RMS norm over
// each head (QK-norm), rotary embedding, optional temperature of the query by position.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace bdlm {

/// cos and sin of position x frequency, made once a run for all positions a document can have.
struct RotaryTable {
  Tensor cos, sin;     // [positions, rotary_dim / 2], accumulate dtype
  Tensor temperature;  // [1, positions] factor of the rotated query, accumulate dtype; empty: 1
};

/// x[row, head] -> rotary(norm(x[row, head])) * temperature. Rotation is half-split: channel i is
/// paired with i + rotary_dim / 2; channels from rotary_dim on pass through.
struct HeadRotary {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  Tensor norm_weight;  // [1, head_dim] compute dtype; empty: no norm
  double norm_eps = 0;
  const std::int32_t* positions = nullptr;  // [rows] position in the document, device memory
  RotaryTable table;                        // temperature is applied when it is not empty
};

}  // namespace bdlm
