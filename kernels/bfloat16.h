// SPDX-License-Identifier: Apache-2.0
// bfloat16 storage: the upper half of a float, rounded to nearest even. Arithmetic is done in
// float.
#pragma once

#include <bit>
#include <cstdint>

namespace bdlm {

struct bfloat16 {
  std::uint16_t bits = 0;

  bfloat16() = default;
  explicit bfloat16(float value) {
    const auto raw = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = raw + 0x7fffu + ((raw >> 16) & 1u);
    const bool nan = (raw & 0x7fffffffu) > 0x7f800000u;  // rounding could carry a NaN into infinity
    bits = static_cast<std::uint16_t>((nan ? raw | 0x00400000u : rounded) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

}  // namespace bdlm
