// SPDX-License-Identifier: Apache-2.0
// Plain definition: root-mean-square norm of rows.
#pragma once

#include <cmath>

#include "kernels/reference/matrix.h"

namespace bdlm::reference {

/// y = x rstd weight, rstd = 1 / sqrt(mean(x^2) + eps).
template <class A>
void rms_norm_forward(const Matrix<A>& x, const Matrix<A>& weight, double eps, Matrix<A>& y,
                      Matrix<A>& rstd) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    A squares = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) squares += x(i, j) * x(i, j);
    rstd(i, 0) = A(1) / std::sqrt(squares / A(x.cols) + A(eps));
    for (std::int64_t j = 0; j < x.cols; ++j) y(i, j) = x(i, j) * rstd(i, 0) * weight(0, j);
  }
}

/// dx += rstd (g - x rstd mean(g x rstd)) with g = dy weight; dweight += sum of dy x rstd.
template <class A>
void rms_norm_backward(const Matrix<A>& x, const Matrix<A>& weight, const Matrix<A>& rstd,
                       const Matrix<A>& dy, Matrix<A>& dx, Matrix<A>& dweight) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const A scale = rstd(i, 0);
    A mean = 0;
    for (std::int64_t j = 0; j < x.cols; ++j) mean += dy(i, j) * weight(0, j) * x(i, j) * scale;
    mean /= A(x.cols);
    for (std::int64_t j = 0; j < x.cols; ++j) {
      const A normed = x(i, j) * scale;
      dx(i, j) += scale * (dy(i, j) * weight(0, j) - normed * mean);
      dweight(0, j) += dy(i, j) * normed;
    }
  }
}

}  // namespace bdlm::reference
