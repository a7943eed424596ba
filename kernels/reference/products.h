// SPDX-License-Identifier: Apache-2.0
// Plain definitions: matrix product, bias.
#pragma once

#include "kernels/reference/matrix.h"

namespace bdlm::reference {

template <class A>
Matrix<A> transpose(const Matrix<A>& x) {
  Matrix<A> y(x.cols, x.rows);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) y(j, i) = x(i, j);
  }
  return y;
}

/// c += a b.
template <class A>
void multiply_add(const Matrix<A>& a, const Matrix<A>& b, Matrix<A>& c) {
  for (std::int64_t i = 0; i < a.rows; ++i) {
    for (std::int64_t j = 0; j < b.cols; ++j) {
      A sum = 0;
      for (std::int64_t k = 0; k < a.cols; ++k) sum += a(i, k) * b(k, j);
      c(i, j) += sum;
    }
  }
}

template <class A>
void add_bias(const Matrix<A>& bias, Matrix<A>& y) {
  for (std::int64_t i = 0; i < y.rows; ++i) {
    for (std::int64_t j = 0; j < y.cols; ++j) y(i, j) += bias(0, j);
  }
}

template <class A>
void bias_gradient(const Matrix<A>& dy, Matrix<A>& dbias) {
  for (std::int64_t i = 0; i < dy.rows; ++i) {
    for (std::int64_t j = 0; j < dy.cols; ++j) dbias(0, j) += dy(i, j);
  }
}

}  // namespace bdlm::reference
