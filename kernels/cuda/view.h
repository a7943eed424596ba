// SPDX-License-Identifier: Apache-2.0
// What a kernel's launch function is given instead of a Tensor: nvcc compiles kernels and cannot
// compile the formatting library behind kernels/error.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/bfloat16.h"

namespace bdlm::cuda {

/// A matrix in device memory. Nothing is aligned beyond its element unless a launch checks it.
template <class T>
struct View {
  T* data = nullptr;
  std::int64_t rows = 0, cols = 0;
  std::int64_t stride = 0;  // elements from one row to the next

  bool contiguous() const { return stride == cols || rows <= 1; }
};

/// The type in which sums of T are kept.
template <class T>
using sum_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace bdlm::cuda
