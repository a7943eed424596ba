// SPDX-License-Identifier: Apache-2.0
// Plain definitions: matrix product, products of groups of rows, bias.
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

/// Rows [first, first + count).
template <class A>
Matrix<A> rows_of(const Matrix<A>& x, std::int64_t first, std::int64_t count) {
  Matrix<A> y(count, x.cols);
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t j = 0; j < x.cols; ++j) y(i, j) = x(first + i, j);
  }
  return y;
}

/// c[group] = a[group] w_g, or a[group] w_g^T where w is turned.
template <class A>
void grouped_gemm(const Matrix<A>& a, const std::vector<std::int64_t>& rows, const Matrix<A>& w,
                  bool turned, Matrix<A>& c) {
  const auto each = w.rows / static_cast<std::int64_t>(rows.size());
  std::int64_t first = 0, group = 0;
  for (const std::int64_t count : rows) {
    const Matrix<A> mine = rows_of(w, group++ * each, each);
    Matrix<A> product(count, c.cols);
    multiply_add(rows_of(a, first, count), turned ? transpose(mine) : mine, product);
    for (std::int64_t i = 0; i < count; ++i) {
      for (std::int64_t j = 0; j < c.cols; ++j) c(first + i, j) = product(i, j);
    }
    first += count;
  }
}

/// dw_g += dy[group]^T x[group].
template <class A>
void grouped_gemm_gradient(const Matrix<A>& dy, const Matrix<A>& x,
                           const std::vector<std::int64_t>& rows, Matrix<A>& dw) {
  std::int64_t first = 0, at = 0;
  for (const std::int64_t count : rows) {
    Matrix<A> product(dy.cols, x.cols);
    multiply_add(transpose(rows_of(dy, first, count)), rows_of(x, first, count), product);
    for (std::int64_t i = 0; i < dy.cols; ++i, ++at) {
      for (std::int64_t j = 0; j < x.cols; ++j) dw(at, j) += product(i, j);
    }
    first += count;
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
