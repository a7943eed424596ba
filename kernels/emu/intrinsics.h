// SPDX-License-Identifier: Apache-2.0
// Arithmetic that CUDA offers beyond the C++ library. Approximate functions are exact here: their
// error on hardware, up to about 1e-6, has to be allowed for in tests.
#pragma once

// math.h and not only cmath: exp(float) without std:: must be the float overload, as in CUDA.
#include <math.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kernels/emu/vector_types.h"

using std::max;
using std::min;

inline float __expf(float x) { return std::exp(x); }
inline float __exp10f(float x) { return std::pow(10.0f, x); }
inline float __logf(float x) { return std::log(x); }
inline float __log2f(float x) { return std::log2(x); }
inline float __log10f(float x) { return std::log10(x); }
inline float __powf(float x, float y) { return std::pow(x, y); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline float __tanf(float x) { return std::tan(x); }
inline void __sincosf(float x, float* s, float* c) {
  *s = std::sin(x);
  *c = std::cos(x);
}
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float a) { return a > 1 ? 1.0f : a > 0 ? a : 0.0f; }  // NaN gives 0
inline float rsqrtf(float a) { return 1.0f / std::sqrt(a); }
inline double rsqrt(double a) { return 1.0 / std::sqrt(a); }
inline float rsqrt(float a) { return rsqrtf(a); }

// Rounded to nearest, never contracted into a fused multiply-add.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
inline float __frsqrt_rn(float a) { return float(1.0 / std::sqrt(double(a))); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline double __dsqrt_rn(double a) { return std::sqrt(a); }

inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return std::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return std::bit_cast<double>(x); }
inline int __double2hiint(double x) { return int(std::bit_cast<std::uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return int(std::bit_cast<std::uint64_t>(x)); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(std::uint64_t(unsigned(high)) << 32 | unsigned(low));
}

inline float __double2float_rn(double x) { return float(x); }
inline float __int2float_rn(int x) { return float(x); }
inline float __uint2float_rn(unsigned x) { return float(x); }
inline double __ull2double_rn(unsigned long long x) { return double(x); }
inline int __float2int_rn(float x) { return int(std::nearbyint(x)); }
inline int __float2int_rz(float x) { return int(x); }

inline int __popc(unsigned x) { return std::popcount(x); }
inline int __popcll(unsigned long long x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(unsigned(x)); }
inline int __clzll(long long x) { return std::countl_zero(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return x ? std::countr_zero(unsigned(x)) + 1 : 0; }
inline int __ffsll(long long x) {
  return x ? std::countr_zero(static_cast<unsigned long long>(x)) + 1 : 0;
}
inline unsigned __brev(unsigned x) {
  unsigned reversed = 0;
  for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1) << (31 - bit);
  return reversed;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned(std::uint64_t(a) * b >> 32); }
inline int __mulhi(int a, int b) { return int(std::int64_t(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  __extension__ typedef unsigned __int128 Product;
  return static_cast<unsigned long long>(Product(a) * b >> 64);
}
/// Byte i of the result is byte s[4i + 2 : 4i] of y:x, or its sign where bit 4i + 3 of s is set.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned s) {
  const std::uint64_t bytes = std::uint64_t(y) << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned selector = s >> (4 * i) & 15;
    unsigned byte = unsigned(bytes >> (8 * (selector & 7))) & 255;
    if (selector & 8) byte = byte & 128 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}
inline long long clock64() {
  static thread_local long long ticks = 0;  // grows; nothing here takes time
  return ++ticks;
}
