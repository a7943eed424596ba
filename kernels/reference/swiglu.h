// SPDX-License-Identifier: Apache-2.0
// Plain definitions: silu(gate) * up, and the same times a weight for each row.
#pragma once

#include <cmath>

#include "kernels/reference/matrix.h"

namespace bdlm::reference {

template <class A>
A sigmoid(A x) {
  return A(1) / (A(1) + std::exp(-x));
}

template <class A>
void swiglu_forward(const Matrix<A>& gate_up, Matrix<A>& y) {
  for (std::int64_t i = 0; i < y.rows; ++i) {
    for (std::int64_t j = 0; j < y.cols; ++j) {
      y(i, j) = gate_up(i, j) * sigmoid(gate_up(i, j)) * gate_up(i, j + y.cols);
    }
  }
}

template <class A>
void swiglu_backward(const Matrix<A>& gate_up, const Matrix<A>& dy, Matrix<A>& dgate_up) {
  for (std::int64_t i = 0; i < dy.rows; ++i) {
    for (std::int64_t j = 0; j < dy.cols; ++j) {
      const A gate = gate_up(i, j), up = gate_up(i, j + dy.cols), s = sigmoid(gate);
      dgate_up(i, j) = dy(i, j) * up * (s + gate * s * (A(1) - s));
      dgate_up(i, j + dy.cols) = dy(i, j) * gate * s;
    }
  }
}

template <class A>
void weighted_swiglu_forward(const Matrix<A>& gate_up, const Matrix<A>& weight, Matrix<A>& y) {
  swiglu_forward(gate_up, y);
  for (std::int64_t i = 0; i < y.rows; ++i) {
    for (std::int64_t j = 0; j < y.cols; ++j) y(i, j) *= weight(i, 0);
  }
}

/// The forward's output is weighted_swiglu_forward's.
template <class A>
void weighted_swiglu_backward(const Matrix<A>& gate_up, const Matrix<A>& weight,
                              const Matrix<A>& dy, Matrix<A>& dgate_up, Matrix<A>& dweight) {
  Matrix<A> plain(dy.rows, dy.cols);
  swiglu_forward(gate_up, plain);
  swiglu_backward(gate_up, dy, dgate_up);
  for (std::int64_t i = 0; i < dy.rows; ++i) {
    dweight(i, 0) = 0;
    for (std::int64_t j = 0; j < dy.cols; ++j) dweight(i, 0) += dy(i, j) * plain(i, j);
    for (std::int64_t j = 0; j < 2 * dy.cols; ++j) dgate_up(i, j) *= weight(i, 0);
  }
}

}  // namespace bdlm::reference
