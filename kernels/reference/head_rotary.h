// SPDX-License-Identifier: Apache-2.0
// Plain definition: norm of each head, rotary embedding, temperature.
#pragma once

#include "kernels/reference/rms_norm.h"

namespace bdlm::reference {

template <class A>
struct HeadRotary {
  std::int64_t heads = 0, head_dim = 0;
  Matrix<A> weight;  // empty: no norm
  double eps = 0;
  std::vector<std::int32_t> positions;
  Matrix<A> cos, sin, temperature;  // empty: no rotation, no temperature
};

/// [rows, heads * dim] as [rows * heads, dim], and back with the arguments exchanged.
template <class A>
Matrix<A> reshape(Matrix<A> x, std::int64_t rows, std::int64_t cols) {
  x.rows = rows;
  x.cols = cols;
  return x;
}

/// direction 1 rotates, -1 rotates back; both multiply by the temperature.
template <class A>
void rotate(const HeadRotary<A>& args, int direction, Matrix<A>& x) {
  const std::int64_t half = args.cos.cols;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    for (std::int64_t head = 0; head < args.heads; ++head) {
      const std::int64_t first = head * args.head_dim;
      for (std::int64_t j = 0; j < half; ++j) {
        const A c = args.cos(args.positions[std::size_t(i)], j);
        const A s = args.sin(args.positions[std::size_t(i)], j) * A(direction);
        const A a = x(i, first + j), b = x(i, first + j + half);
        x(i, first + j) = a * c - b * s;
        x(i, first + j + half) = b * c + a * s;
      }
      for (std::int64_t j = 0; j < args.head_dim && !args.temperature.empty(); ++j) {
        x(i, first + j) *= args.temperature(0, args.positions[std::size_t(i)]);
      }
    }
  }
}

template <class A>
void head_rotary_forward(const HeadRotary<A>& args, const Matrix<A>& x, Matrix<A>& y,
                         Matrix<A>& rstd) {
  y = x;
  if (!args.weight.empty()) {
    const std::int64_t count = x.rows * args.heads;
    Matrix<A> normed(count, args.head_dim), scale(count, 1);
    rms_norm_forward(reshape(x, count, args.head_dim), args.weight, args.eps, normed, scale);
    y = reshape(normed, x.rows, x.cols);
    rstd = reshape(scale, x.rows, args.heads);
  }
  rotate(args, 1, y);
}

/// dx is overwritten, dweight is added to.
template <class A>
void head_rotary_backward(const HeadRotary<A>& args, const Matrix<A>& x, const Matrix<A>& rstd,
                          const Matrix<A>& dy, Matrix<A>& dx, Matrix<A>& dweight) {
  dx = dy;
  rotate(args, -1, dx);
  if (!args.weight.empty()) {
    const std::int64_t count = x.rows * args.heads;
    Matrix<A> inner(count, args.head_dim);
    rms_norm_backward(reshape(x, count, args.head_dim), args.weight, reshape(rstd, count, 1),
                      reshape(dx, count, args.head_dim), inner, dweight);
    dx = reshape(inner, x.rows, x.cols);
  }
}

}  // namespace bdlm::reference
