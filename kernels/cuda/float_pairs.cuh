// SPDX-License-Identifier: Apache-2.0
// Rows of floats read and written two at a time, as mma leaves them in a lane: one 8-byte access
// where rows allow it.
#pragma once

#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {

struct FloatPairs {
  float* data = nullptr;
  std::int64_t rows = 0, stride = 0;
  bool aligned = false;

  FloatPairs() = default;
  explicit FloatPairs(const View<float>& x)
      : data(x.data),
        rows(x.rows),
        stride(x.stride),
        aligned(reinterpret_cast<std::uintptr_t>(x.data) % 8 == 0 && x.stride % 2 == 0) {}

  /// col is even.
  CU_INLINE float2 get(std::int64_t row, std::int64_t col) const {
    const float* const from = data + row * stride + col;
    return aligned ? *reinterpret_cast<const float2*>(from) : make_float2(from[0], from[1]);
  }
  CU_INLINE void set(std::int64_t row, std::int64_t col, float x, float y) const {
    float* const to = data + row * stride + col;
    if (aligned) {
      *reinterpret_cast<float2*>(to) = make_float2(x, y);
    } else {
      to[0] = x;
      to[1] = y;
    }
  }
  CU_INLINE void add(std::int64_t row, std::int64_t col, float x, float y) const {
    const float2 old = get(row, col);
    set(row, col, old.x + x, old.y + y);
  }
};

}  // namespace bdlm::cuda
