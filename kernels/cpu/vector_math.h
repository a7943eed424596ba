// SPDX-License-Identifier: Apache-2.0
// Elementary functions that the compiler can vectorise: straight-line code, no library call.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace bdlm {

/// e^x to about 1 ulp. exp(-inf) = 0, overflow gives +inf, NaN stays NaN. Results below 2^-125 are
/// 0: with subnormal numbers the processor is a hundred times slower. Call it in a simd loop.
inline float fast_exp(float x) {
  // Beyond these the result is 0 or infinity. The comparisons let NaN through.
  const float low = x < -87.3f ? -87.3f : x;
  const float z = low > 89.0f ? 89.0f : low;
  // Adding 1.5 * 2^23 rounds z / ln 2 to the integer n, which appears in the low bits of the sum.
  constexpr float shift = 12582912.0f;
  const float shifted = z * 1.44269504088896341f + shift;
  const float n = shifted - shift;
  // r = z - n ln 2 with ln 2 in two parts, so that the first product is exact; |r| <= ln 2 / 2.
  float r = z - n * 0.693145751953125f;
  r = r - n * 1.42860682030941723e-6f;
  // e^r = 1 + r + r^2 q(r), q fitted to the least relative error.
  float q = 1.9875691500e-4f;
  q = q * r + 1.3981999507e-3f;
  q = q * r + 8.3334519073e-3f;
  q = q * r + 4.1665795894e-2f;
  q = q * r + 1.6666665459e-1f;
  q = q * r + 5.0000001201e-1f;
  const float power = (q * r * r + r) + 1.0f;
  // 2 e^r times 2^(n - 1), as 2^128 has no float. The exponent's bits are 0, so the factor too, at
  // n = -126.
  const auto integer = std::bit_cast<std::int32_t>(shifted) - std::bit_cast<std::int32_t>(shift);
  return (power + power) * std::bit_cast<float>((integer + 126) << 23);
}

inline double fast_exp(double x) { return std::exp(x); }

}  // namespace bdlm
