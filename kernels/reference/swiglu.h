// SPDX-License-Identifier: Apache-2.0
// Plain definition: silu(gate) * up.
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

}  // namespace bdlm::reference
