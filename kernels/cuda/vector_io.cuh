// SPDX-License-Identifier: Apache-2.0
// Several neighbouring elements in one memory access, 16 bytes of the widest type in play.
// A kernel takes the number of elements N as a parameter; with N = 1 it is its own fallback.
#pragma once

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

template <int N, class T>
CU_INLINE void store_vector(T* to, const Vector<T, N>& x) {
  *reinterpret_cast<Vector<T, N>*>(to) = x;
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
