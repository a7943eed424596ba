// SPDX-License-Identifier: Apache-2.0
// From a tensor's dtype at run time to a C++ type, and typed rows of a matrix.
#pragma once

#include <type_traits>

#include "kernels/tensor.h"

namespace bdlm {

/// accumulate_type as a C++ type.
template <class T>
using accumulate_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// T holds `value` rounded to it. Goes through float where bfloat16 is on one side.
template <class T, class U>
inline T convert(U value) {
  if constexpr (std::is_same_v<T, U>) {
    return value;
  } else if constexpr (std::is_same_v<T, bfloat16> || std::is_same_v<U, bfloat16>) {
    return static_cast<T>(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

/// An element as the arithmetic sees it: bfloat16 becomes float.
template <class T>
inline accumulate_t<T> load(const T& value) {
  return convert<accumulate_t<T>>(value);
}

/// target = value rounded to T. Assigning the bits keeps loops over bfloat16 vectorisable: g++ 12
/// does not vectorise copies of a class.
template <class T, class U>
inline void store(T& target, U value) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    target.bits = convert<bfloat16>(value).bits;
  } else {
    target = convert<T>(value);
  }
}

/// Calls body.template operator()<T>() with the C++ type of `type`; body is a generic lambda
/// []<class T>() { ... }.
template <class Body>
void dispatch(DType type, Body&& body) {
  switch (type) {
    case DType::f64:
      return body.template operator()<double>();
    case DType::f32:
      return body.template operator()<float>();
    case DType::bf16:
      return body.template operator()<bfloat16>();
  }
}

/// body.operator()<A>() with the C++ type of an accumulate type.
template <class Body>
void dispatch_sums(DType type, Body&& body) {
  require(type != DType::bf16, "sums, statistics and probabilities are not kept in bf16");
  if (type == DType::f64) return body.template operator()<double>();
  body.template operator()<float>();
}

/// body.operator()<T, X>() with the C++ types of `type` and of `other`, which is T or its
/// accumulate type.
template <class Body>
void dispatch_with_sums(DType type, DType other, Body&& body) {
  dispatch(type, [&]<class T>() {
    if (other == type)
      body.template operator()<T, T>();
    else
      body.template operator()<T, accumulate_t<T>>();
  });
}

/// A tensor whose type is known.
template <class T>
struct Rows {
  T* data;
  std::int64_t stride;

  explicit Rows(const Tensor& x) : data(x.as<T>()), stride(x.stride) {}
  T* operator[](std::int64_t row) const { return data + row * stride; }
};

/// The shape check of every operation; `what` names the argument, as in "rms_norm_forward: weight".
inline void require_shape(const char* what, const Tensor& x, std::int64_t rows, std::int64_t cols) {
  require(x.rows == rows && x.cols == cols, "{}: the tensor is {} x {}, expected {} x {}", what,
          x.rows, x.cols, rows, cols);
}

inline void require_dtype(const char* what, const Tensor& x, DType type) {
  require(x.dtype == type, "{}: the tensor is {}, expected {}", what, name_of(x.dtype),
          name_of(type));
}

/// Every index in [0, limit): a wrong one would write into foreign memory.
inline void require_indices(const char* operation, const std::int32_t* indices, std::int64_t count,
                            std::int64_t limit) {
  for (std::int64_t i = 0; i < count; ++i) {
    require(indices[i] >= 0 && indices[i] < limit, "{}: index {} at position {} is not in [0, {})",
            operation, indices[i], i, limit);
  }
}

inline void require_matrix(const char* what, const Tensor& x, std::int64_t rows, std::int64_t cols,
                           DType type) {
  require_shape(what, x, rows, cols);
  require_dtype(what, x, type);
}

}  // namespace bdlm
