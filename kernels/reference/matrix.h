// SPDX-License-Identifier: Apache-2.0
// The plain definitions of the operations (kernels/reference/*.h) work on this: one loop after the
// other, in the order of the formula. The arithmetic type is a parameter, so that a definition is
// the truth (long double) as well as what a simple implementation in that precision would give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bdlm::reference {

template <class A>
struct Matrix {
  std::int64_t rows = 0, cols = 0;
  std::vector<A> values;

  Matrix() = default;
  Matrix(std::int64_t r, std::int64_t c) : rows(r), cols(c), values(std::size_t(r * c)) {}

  A& operator()(std::int64_t i, std::int64_t j) { return values[std::size_t(i * cols + j)]; }
  A operator()(std::int64_t i, std::int64_t j) const { return values[std::size_t(i * cols + j)]; }
  bool empty() const { return values.empty(); }
};

}  // namespace bdlm::reference
