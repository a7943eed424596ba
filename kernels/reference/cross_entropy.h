// SPDX-License-Identifier: Apache-2.0
// Plain definition: cross-entropy and its gradient, with one id that may be no answer.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/reference/matrix.h"

namespace bdlm::reference {

template <class A>
void cross_entropy(const Matrix<A>& logits, const std::vector<std::int32_t>& targets,
                   const Matrix<A>& weight, std::int64_t excluded, Matrix<A>& loss,
                   Matrix<A>& dlogits) {
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    A largest = -std::numeric_limits<A>::infinity();
    for (std::int64_t j = 0; j < logits.cols; ++j) {
      if (j != excluded && logits(i, j) > largest) largest = logits(i, j);
    }
    A sum = 0;
    for (std::int64_t j = 0; j < logits.cols; ++j) {
      if (j != excluded) sum += std::exp(logits(i, j) - largest);
    }
    const std::int64_t target = targets[std::size_t(i)];
    loss(i, 0) = std::log(sum) + largest - logits(i, target);
    for (std::int64_t j = 0; j < logits.cols; ++j) {
      const A p = j == excluded ? A(0) : std::exp(logits(i, j) - largest) / sum;
      dlogits(i, j) = weight(i, 0) * (p - A(j == target ? 1 : 0));
    }
  }
}

}  // namespace bdlm::reference
