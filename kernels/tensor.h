// SPDX-License-Identifier: Apache-2.0
// A tensor here is a view of a matrix in device memory: rows are token rows, columns are channels.
// Heads are columns ([rows, heads * head_dim]), a vector is one row. Views never own memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/bfloat16.h"
#include "kernels/error.h"

namespace bdlm {

enum class DType : std::uint8_t { f64, f32, bf16 };

constexpr std::size_t size_of(DType type) {
  return type == DType::f64 ? 8 : type == DType::f32 ? 4 : 2;
}

/// The type in which sums of `type` are kept: softmax, norms, loss, gradients, moments, masters.
constexpr DType accumulate_type(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

const char* name_of(DType type);

template <class T>
constexpr DType dtype_of() {
  static_assert(std::is_same_v<T, double> || std::is_same_v<T, float> ||
                std::is_same_v<T, bfloat16>);
  if constexpr (std::is_same_v<T, double>) return DType::f64;
  if constexpr (std::is_same_v<T, float>) return DType::f32;
  return DType::bf16;
}

struct Tensor {
  void* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;  // elements from one row to the next, >= cols
  DType dtype = DType::f32;

  bool empty() const { return rows == 0 || cols == 0; }
  bool contiguous() const { return stride == cols || rows <= 1; }
  std::int64_t size() const { return rows * cols; }

  /// Typed access; throws std::logic_error's equivalent (Error) when T is not the dtype.
  template <class T>
  T* as() const {
    require(dtype == dtype_of<T>(), "tensor of {} read as {}", name_of(dtype),
            name_of(dtype_of<T>()));
    return static_cast<T*>(data);
  }

  Tensor slice_rows(std::int64_t first, std::int64_t count) const {
    return {at(first * stride), count, cols, stride, dtype};
  }
  Tensor slice_cols(std::int64_t first, std::int64_t count) const {
    return {at(first), rows, count, stride, dtype};
  }
  /// The same memory with another shape; the tensor must be contiguous and hold rows * cols
  /// elements.
  Tensor reshape(std::int64_t new_rows, std::int64_t new_cols) const {
    require(contiguous() && new_rows * new_cols == size(), "reshape of {}x{} to {}x{}", rows, cols,
            new_rows, new_cols);
    return {data, new_rows, new_cols, new_cols, dtype};
  }

 private:
  void* at(std::int64_t elements) const {
    return static_cast<std::byte*>(data) + elements * static_cast<std::int64_t>(size_of(dtype));
  }
};

}  // namespace bdlm
