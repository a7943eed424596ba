// SPDX-License-Identifier: Apache-2.0
// Several neighbouring elements in one memory access, 16 bytes of the widest type in play.
// A kernel takes the number of elements N as a parameter; with N = 1 it is its own fallback.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {

/// N elements, aligned so that the compiler moves them 16 bytes at a time (or all, if fewer).
template <class T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vector {
  T at[N];
};

template <int N, class T>
CU_INLINE Vector<T, N> load_vector(const T* from) {
  return *reinterpret_cast<const Vector<T, N>*>(from);
}

__extension__ typedef unsigned __int128 Word16;

/// Unsigned integer of so many bytes.
template <std::size_t bytes>
using Word = std::conditional_t<
    bytes == 16, Word16,
    std::conditional_t<bytes == 8, std::uint64_t,
                       std::conditional_t<bytes == 4, std::uint32_t, std::uint16_t>>>;

/// Neighbouring elements as one integer.
template <std::size_t bytes, class T>
CU_INLINE Word<bytes> joined(const T* at) {
  if constexpr (bytes == sizeof(T)) {
    Word<bytes> word;
    memcpy(&word, at, bytes);
    return word;
  } else {
    const Word<bytes> low = joined<bytes / 2>(at);
    const Word<bytes> high = joined<bytes / 2>(at + bytes / 2 / sizeof(T));
    return low | high << 4 * bytes;
  }
}

/// As integers: nvcc splits the store of elements that were computed one by one.
template <int N, class T>
CU_INLINE void store_vector(T* to, const Vector<T, N>& x) {
  constexpr std::size_t width = sizeof(x) < 16 ? sizeof(x) : 16;
  constexpr int each = width / sizeof(T);
#pragma unroll
  for (int k = 0; k < N; k += each) {
    using Access [[gnu::may_alias]] = Word<width>;
    *reinterpret_cast<Access*>(to + k) = joined<width>(x.at + k);
  }
}

/// Elements of the widest of the types in 16 bytes.
template <class... T>
constexpr int vector_width() {
  std::size_t widest = 1;
  ((widest = sizeof(T) > widest ? sizeof(T) : widest), ...);
  return static_cast<int>(16 / widest);
}

/// Whether each row of x is a whole number of aligned Vector<T, N>.
template <int N, class T>
bool fits(const View<T>& x) {
  constexpr std::size_t bytes = sizeof(Vector<T, N>), align = alignof(Vector<T, N>);
  const auto row_bytes = static_cast<std::size_t>(x.stride) * sizeof(T);
  return static_cast<std::size_t>(x.cols) * sizeof(T) % bytes == 0 &&
         reinterpret_cast<std::uintptr_t>(x.data) % align == 0 &&
         (x.rows <= 1 || row_bytes % align == 0);
}

}  // namespace bdlm::cuda
