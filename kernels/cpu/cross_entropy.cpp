// SPDX-License-Identifier: Apache-2.0
// Cross-entropy over the vocabulary, or a part of it, with its gradient. A row of logits is read
// three times, but only the first time from memory.
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

/// Of the logits of one row, or of some of its ids.
template <class A>
struct Statistics {
  A largest;
  double sum;  // of exp(logit - largest)
  A target;    // the target's logit; 0 when it is elsewhere
};

/// Ids count from x's first one; those outside of [0, count) are elsewhere. The excluded id splits
/// the row in two runs.
template <class A>
struct LogitRow {
  const A* x;
  std::int64_t count, target, excluded;

  bool split() const { return excluded >= 0 && excluded < count; }
  std::int64_t head() const { return split() ? excluded : count; }
  std::int64_t tail() const { return split() ? excluded + 1 : count; }
  bool has_target() const { return target >= 0 && target < count; }

  Statistics<A> statistics() const {
    constexpr A infinity = std::numeric_limits<A>::infinity();
    const A top = largest(x + tail(), count - tail(), largest(x, head(), -infinity));
    const A shift = top == -infinity ? A(0) : top;  // -inf - -inf would be NaN
    const double sum = sum_exp(x, head(), shift) + sum_exp(x + tail(), count - tail(), shift);
    return {top, sum, !has_target() ? A(0) : target == excluded ? -infinity : x[target]};
  }

  /// `all`: of the whole row.
  template <class T>
  void gradient(const Statistics<A>& all, A weight, T* y) const {
    const A factor = static_cast<A>(static_cast<double>(weight) / all.sum);
    softmax_times(x, head(), all.largest, factor, y);
    if (split()) store(y[excluded], A(0));
    softmax_times(x + tail(), count - tail(), all.largest, factor, y + tail());
    if (!has_target() || target == excluded) return;
    // In double and not from the rounded weight * p: 1 - p is small when the model is sure.
    const double logit = static_cast<double>(all.target) - static_cast<double>(all.largest);
    const double p = std::exp(logit) / all.sum;
    store(y[target], static_cast<A>(static_cast<double>(weight) * (p - 1)));
  }
};

template <class A>
A loss_of(const Statistics<A>& s) {
  return static_cast<A>(std::log(s.sum) -
                        (static_cast<double>(s.target) - static_cast<double>(s.largest)));
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
                      for (std::int64_t i = first; i < last; ++i) {
                        const LogitRow<A> row{in[i], vocab, targets[i], excluded};
                        const Statistics<A> all = row.statistics();
                        losses[i][0] = loss_of(all);
                        row.gradient(all, weights[i][0], out[i]);
                      }
                    });
  });
}

void CpuDevice::cross_entropy_statistics(Tensor logits, std::int64_t first,
                                         const std::int32_t* targets, std::int64_t excluded,
                                         Tensor statistics) {
  check_cross_entropy_statistics(logits, first, statistics);
  require_indices("cross_entropy_statistics: targets", targets, logits.rows, INT32_MAX);
  dispatch_sums(logits.dtype, [&]<class A>() {
    const Rows<A> in(logits), out(statistics);
    const auto run = [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const auto s =
            LogitRow<A>{in[i], logits.cols, targets[i] - first, excluded - first}.statistics();
        out[i][0] = s.largest;
        out[i][1] = static_cast<A>(s.sum);
        out[i][2] = s.target;
      }
    };
    parallel_ranges(threads_, logits.rows, logits.size(), run);
  });
}

void CpuDevice::merge_cross_entropy(Tensor parts, Tensor statistics, Tensor loss) {
  check_merge_cross_entropy(parts, statistics, loss);
  dispatch_sums(loss.dtype, [&]<class A>() {
    const Rows<A> in(parts), out(statistics), losses(loss);
    for (std::int64_t i = 0; i < loss.rows; ++i) {
      Statistics<A> all{-std::numeric_limits<A>::infinity(), 0, 0};
      for (std::int64_t at = i; at < parts.rows; at += loss.rows) {
        all.largest = std::max(all.largest, in[at][0]);
        all.target += in[at][2];
      }
      for (std::int64_t at = i; at < parts.rows; at += loss.rows) {
        const double lower = static_cast<double>(in[at][0]) - static_cast<double>(all.largest);
        all.sum += static_cast<double>(in[at][1]) * std::exp(lower);
      }
      out[i][0] = all.largest;
      out[i][1] = static_cast<A>(all.sum);
      out[i][2] = all.target;
      losses[i][0] = loss_of(all);
    }
  });
}

void CpuDevice::cross_entropy_gradient(Tensor logits, std::int64_t first,
                                       const std::int32_t* targets, Tensor weight,
                                       std::int64_t excluded, Tensor statistics, Tensor dlogits) {
  check_cross_entropy_gradient(logits, first, weight, statistics, dlogits);
  dispatch(dlogits.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<A> in(logits), weights(weight), all(statistics);
    const Rows<T> out(dlogits);
    const auto run = [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const Statistics<A> s{all[i][0], static_cast<double>(all[i][1]), all[i][2]};
        LogitRow<A>{in[i], logits.cols, targets[i] - first, excluded - first}.gradient(
            s, weights[i][0], out[i]);
      }
    };
    parallel_ranges(threads_, logits.rows, logits.size(), run);
  });
}

}  // namespace bdlm
