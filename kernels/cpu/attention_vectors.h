// SPDX-License-Identifier: Apache-2.0
// Vectors of the widest registers of the compile target, by the compiler's vector extension, and
// the few functions of them that attention needs.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "kernels/dispatch.h"

namespace bdlm::attention {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;
#endif

template <class A>
struct VectorOf {
  typedef A type __attribute__((vector_size(vector_bytes)));
};
template <class A>
using Vector = typename VectorOf<A>::type;
template <class A>
inline constexpr int width = vector_bytes / static_cast<int>(sizeof(A));

/// The integer as wide as A: what comparisons of Vector<A> give, and interval bounds beside it.
template <class A>
using IntegerOf = std::conditional_t<sizeof(A) == 8, std::int64_t, std::int32_t>;

/// The vector at p, which is aligned to vector_bytes.
template <class A>
inline Vector<A>& vector_at(A* p) {
  return *reinterpret_cast<Vector<A>*>(p);
}
template <class A>
inline const Vector<A>& vector_at(const A* p) {
  return *reinterpret_cast<const Vector<A>*>(p);
}

template <class V>
inline V maximum(V a, V b) {
  return a > b ? a : b;  // b where a is NaN
}

template <class V>
inline bool any(V mask) {
  bool set = false;
  for (int i = 0; i < static_cast<int>(sizeof(V) / sizeof(mask[0])); ++i) set |= mask[i] != 0;
  return set;
}

/// How exact 2^x has to be: `rounded` is for results that are rounded to bfloat16.
enum class Precision { full, rounded };

/// 2^x for x <= about 100: 0 below the normal range (and for -infinity), NaN for NaN.
template <Precision precision>
inline Vector<float> exp2(Vector<float> x) {
  x = x < -127.0f ? Vector<float>{} - 127.0f : x;
  // Adding 1.5 * 2^23 rounds to an integer, which then lies in the low bits.
  const Vector<float> shifted = x + 12582912.0f;
  const Vector<float> f = x - (shifted - 12582912.0f);
  Vector<float> y;
  if constexpr (precision == Precision::full) {  // relative error 9e-8
    y = 9.6715127858e-03f + f * 1.3264727253e-03f;
    y = 5.5507337445e-02f + f * y;
    y = 2.4022242083e-01f + f * y;
    y = 6.9314697760e-01f + f * y;
  } else {  // 3e-6
    y = 5.5906425942e-02f + f * 9.5828532355e-03f;
    y = 2.4024098616e-01f + f * y;
    y = 6.9312419326e-01f + f * y;
  }
  y = 1.0f + f * y;
  using Bits = Vector<std::int32_t>;
  return y * std::bit_cast<Vector<float>>((std::bit_cast<Bits>(shifted) + 127) << 23);
}

template <Precision>
inline Vector<double> exp2(Vector<double> x) {
  x = x < -1023.0 ? Vector<double>{} - 1023.0 : x;
  const Vector<double> shifted = x + 6755399441055744.0;  // 1.5 * 2^52
  const Vector<double> f = (x - (shifted - 6755399441055744.0)) * 0.6931471805599453094;
  // Taylor's series of e^f, |f| <= ln 2 / 2: the first term left out is below 1e-17.
  Vector<double> y = Vector<double>{} + 1.0 / 6227020800.0;
  for (const double coefficient :
       {1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040,
        1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 1.0 / 2, 1.0, 1.0}) {
    y = coefficient + f * y;
  }
  using Bits = Vector<std::int64_t>;
  return y * std::bit_cast<Vector<double>>((std::bit_cast<Bits>(shifted) + 1023) << 52);
}

inline constexpr double log2_e = 1.4426950408889634074;
inline constexpr double ln_2 = 0.6931471805599453094;

/// Swaps the blocks of `distance` elements off the diagonal between rows that lie as far apart.
template <int distance, class E>
[[gnu::always_inline]] inline void transpose_step(Vector<E> (&rows)[width<E>]) {
  Vector<IntegerOf<E>> low, high;  // the constant operands of the shuffles
  for (int i = 0; i < width<E>; ++i) {
    low[i] = i & distance ? width<E> + i - distance : i;
    high[i] = i & distance ? width<E> + i : i + distance;
  }
#pragma GCC unroll 16
  for (int r = 0; r < width<E>; ++r) {
    if (r & distance) continue;
    const Vector<E> a = rows[r], b = rows[r + distance];
    rows[r] = __builtin_shuffle(a, b, low);
    rows[r + distance] = __builtin_shuffle(a, b, high);
  }
  if constexpr (2 * distance < width<E>) transpose_step<2 * distance, E>(rows);
}

/// to[c][r] = from[r][c] for rows x cols elements, both multiples of the vector width, aligned.
template <class E>
inline void transpose(const E* from, std::int64_t from_stride, std::int64_t rows, std::int64_t cols,
                      E* to, std::int64_t to_stride) {
  for (std::int64_t r = 0; r < rows; r += width<E>) {
    for (std::int64_t c = 0; c < cols; c += width<E>) {
      Vector<E> square[width<E>];
      for (int i = 0; i < width<E>; ++i) square[i] = vector_at(from + (r + i) * from_stride + c);
      transpose_step<1, E>(square);
      for (int i = 0; i < width<E>; ++i) vector_at(to + (c + i) * to_stride + r) = square[i];
    }
  }
}

}  // namespace bdlm::attention
