// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over the vocabulary with its gradient. A row of logits is read three times, but
// only the first time from memory.
#include <cmath>
#include <limits>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace bdlm {
namespace {

/// NaN is passed over here; it reaches the result through the exponentials.
template <class A>
A largest(const A* x, std::int64_t count, A start) {
#pragma omp simd reduction(max : start)
  for (std::int64_t j = 0; j < count; ++j) start = x[j] > start ? x[j] : start;
  return start;
}

/// Sum of exp(x - shift); in double over pieces, as a vocabulary is long for float.
template <class A>
double sum_exp(const A* x, std::int64_t count, A shift) {
  constexpr std::int64_t piece = 4096;
  double total = 0;
  for (std::int64_t begin = 0; begin < count; begin += piece) {
    const std::int64_t end = std::min(begin + piece, count);
    A sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t j = begin; j < end; ++j) sum += fast_exp(x[j] - shift);
    total += static_cast<double>(sum);
  }
  return total;
}

template <class A, class T>
void softmax_times(const A* x, std::int64_t count, A shift, A factor, T* y) {
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) store(y[j], fast_exp(x[j] - shift) * factor);
}

/// One row; returns its loss. The excluded id splits the vocabulary in two runs.
template <class A, class T>
A row_cross_entropy(const A* x, std::int64_t vocab, std::int64_t target, A weight,
                    std::int64_t excluded, T* y) {
  const bool split = excluded >= 0;
  const std::int64_t head = split ? excluded : vocab;
  const std::int64_t tail = split ? excluded + 1 : vocab;
  constexpr A infinity = std::numeric_limits<A>::infinity();
  const A shift = largest(x + tail, vocab - tail, largest(x, head, -infinity));
  const double sum = sum_exp(x, head, shift) + sum_exp(x + tail, vocab - tail, shift);
  const A answer = target == excluded ? -infinity : x[target];
  const double logit = static_cast<double>(answer) - static_cast<double>(shift);
  const double p = std::exp(logit) / sum;

  const A factor = static_cast<A>(static_cast<double>(weight) / sum);
  softmax_times(x, head, shift, factor, y);
  if (split) store(y[excluded], A(0));
  softmax_times(x + tail, vocab - tail, shift, factor, y + tail);
  // In double and not from the rounded weight * p: 1 - p is small when the model is sure.
  if (target != excluded) {
    store(y[target], static_cast<A>(static_cast<double>(weight) * (p - 1)));
  }
  return static_cast<A>(std::log(sum) - logit);
}

}  // namespace

void CpuDevice::cross_entropy(Tensor logits, const std::int32_t* targets, Tensor weight,
                              std::int64_t excluded, Tensor loss, Tensor dlogits) {
  const std::int64_t vocab = logits.cols;
  check_cross_entropy(logits, weight, excluded, loss, dlogits);
  require_indices("cross_entropy: targets", targets, logits.rows, vocab);
  dispatch(dlogits.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<A> in(logits), weights(weight), losses(loss);
    const Rows<T> out(dlogits);
    parallel_ranges(threads_, logits.rows, logits.size(),
                    [&](int, std::int64_t first, std::int64_t last) {
                      for (std::int64_t row = first; row < last; ++row) {
                        losses[row][0] = row_cross_entropy(in[row], vocab, targets[row],
                                                           weights[row][0], excluded, out[row]);
                      }
                    });
  });
}

}  // namespace bdlm
