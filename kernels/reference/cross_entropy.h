// SPDX-License-Identifier: Apache-2.0
// Plain definitions: cross-entropy and its gradient, with one id that may be no answer; and the
// same from parts of the vocabulary.
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

/// Of the ids [first, first + logits.cols).
template <class A>
void cross_entropy_statistics(const Matrix<A>& logits, std::int64_t first,
                              const std::vector<std::int32_t>& targets, std::int64_t excluded,
                              Matrix<A>& statistics) {
  constexpr A infinity = std::numeric_limits<A>::infinity();
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    A largest = -infinity, sum = 0, target = 0;
    for (std::int64_t j = 0; j < logits.cols; ++j) {
      const A x = first + j == excluded ? -infinity : logits(i, j);
      if (x > largest) largest = x;
      if (first + j == targets[std::size_t(i)]) target = x;
    }
    for (std::int64_t j = 0; j < logits.cols; ++j) {
      if (first + j != excluded && logits(i, j) != -infinity)
        sum += std::exp(logits(i, j) - largest);
    }
    statistics(i, 0) = largest;
    statistics(i, 1) = sum;
    statistics(i, 2) = target;
  }
}

template <class A>
void merge_cross_entropy(const Matrix<A>& parts, Matrix<A>& statistics, Matrix<A>& loss) {
  for (std::int64_t i = 0; i < loss.rows; ++i) {
    A largest = -std::numeric_limits<A>::infinity(), sum = 0, target = 0;
    for (std::int64_t at = i; at < parts.rows; at += loss.rows) {
      largest = std::fmax(largest, parts(at, 0));
    }
    for (std::int64_t at = i; at < parts.rows; at += loss.rows) {
      sum += parts(at, 1) * std::exp(parts(at, 0) - largest);
      target += parts(at, 2);
    }
    statistics(i, 0) = largest;
    statistics(i, 1) = sum;
    statistics(i, 2) = target;
    loss(i, 0) = std::log(sum) + largest - target;
  }
}

}  // namespace bdlm::reference
