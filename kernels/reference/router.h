// SPDX-License-Identifier: Apache-2.0
// Plain definitions: a mixture's router (kernels/router.h), forward and backward.
#pragma once

#include <cmath>
#include <limits>

#include "kernels/reference/matrix.h"
#include "kernels/reference/swiglu.h"
#include "kernels/router.h"

namespace bdlm::reference {

template <class A>
void router_probabilities(const Router& router, const Matrix<A>& logits, Matrix<A>& p) {
  for (std::int64_t i = 0; i < logits.rows; ++i) {
    A largest = -std::numeric_limits<A>::infinity(), sum = 0;
    for (std::int64_t e = 0; e < logits.cols; ++e) largest = std::fmax(largest, logits(i, e));
    for (std::int64_t e = 0; e < logits.cols; ++e) sum += std::exp(logits(i, e) - largest);
    for (std::int64_t e = 0; e < logits.cols; ++e) {
      p(i, e) = router.sigmoid ? sigmoid(logits(i, e)) : std::exp(logits(i, e) - largest) / sum;
    }
  }
}

/// The `count` largest of `values`, largest first, of equals the first.
template <class A>
std::vector<std::int32_t> largest_of(std::vector<A> values, std::int64_t count) {
  std::vector<std::int32_t> result;
  std::vector<bool> taken(values.size());
  for (std::int64_t s = 0; s < count; ++s) {
    std::size_t best = values.size();
    for (std::size_t e = 0; e < values.size(); ++e) {
      if (!taken[e] && (best == values.size() || values[e] > values[best])) best = e;
    }
    taken[best] = true;
    result.push_back(static_cast<std::int32_t>(best));
  }
  return result;
}

/// The experts of one row from its choice, probability + bias.
template <class A>
std::vector<std::int32_t> chosen_experts(const Router& router, std::vector<A> choice) {
  constexpr A infinity = std::numeric_limits<A>::infinity();
  for (A& x : choice) x = std::isnan(x) ? -infinity : x;
  if (router.groups == 1) return largest_of(choice, router.chosen);
  const auto size = static_cast<std::size_t>(router.experts / router.groups);
  std::vector<A> group_choice;
  for (std::size_t first = 0; first < choice.size(); first += size) {
    const std::vector<A> group(&choice[first], &choice[first] + size);
    const auto two = largest_of(group, 2);
    group_choice.push_back(group[std::size_t(two[0])] + group[std::size_t(two[1])]);
  }
  std::vector<A> open;  // of the best groups, in the order of the experts
  std::vector<std::int32_t> expert;
  std::vector<bool> best(group_choice.size());
  for (const std::int32_t g : largest_of(group_choice, router.best_groups)) {
    best[std::size_t(g)] = true;
  }
  for (std::size_t e = 0; e < choice.size(); ++e) {
    if (!best[e / size]) continue;
    open.push_back(choice[e]);
    expert.push_back(static_cast<std::int32_t>(e));
  }
  auto result = largest_of(open, router.chosen);
  for (std::int32_t& e : result) e = expert[std::size_t(e)];
  return result;
}

/// bias [1, E] or empty.
template <class A>
std::vector<std::int32_t> choose_experts(const Router& router, const Matrix<A>& p,
                                         const Matrix<A>& bias) {
  std::vector<std::int32_t> chosen;
  for (std::int64_t i = 0; i < p.rows; ++i) {
    std::vector<A> choice;
    for (std::int64_t e = 0; e < p.cols; ++e) {
      choice.push_back(bias.empty() ? p(i, e) : p(i, e) + bias(0, e));
    }
    for (const std::int32_t e : chosen_experts(router, choice)) chosen.push_back(e);
  }
  return chosen;
}

template <class A>
void expert_weights(const Router& router, const Matrix<A>& p,
                    const std::vector<std::int32_t>& chosen, Matrix<A>& weights) {
  for (std::int64_t i = 0; i < weights.rows; ++i) {
    A sum = 0;
    for (std::int64_t s = 0; s < weights.cols; ++s) {
      weights(i, s) = p(i, chosen[std::size_t(i * weights.cols + s)]);
      sum += weights(i, s);
    }
    for (std::int64_t s = 0; s < weights.cols; ++s) {
      if (router.normalize) weights(i, s) /= sum + A(weight_floor);
      weights(i, s) *= A(router.scaling);
    }
  }
}

template <class A>
void balance_sums(const Router& router, const Matrix<A>& p, const std::vector<std::int32_t>& chosen,
                  const std::vector<std::int32_t>& packed, Matrix<A>& sums) {
  for (std::int64_t i = 0; i < p.rows; ++i) {
    const std::int64_t row = packed[std::size_t(i)];
    if (row < 0) continue;
    for (std::int64_t s = 0; s < router.chosen; ++s) {
      sums(row, chosen[std::size_t(i * router.chosen + s)]) += 1;
    }
    for (std::int64_t e = 0; e < p.cols; ++e) sums(row, p.cols + e) += p(i, e);
  }
}

/// balance may be empty.
template <class A>
void router_backward(const Router& router, const Matrix<A>& p,
                     const std::vector<std::int32_t>& chosen, const Matrix<A>& dweights,
                     const Matrix<A>& balance, const std::vector<std::int32_t>& packed,
                     Matrix<A>& dlogits) {
  const std::int64_t k = router.chosen;
  for (std::int64_t i = 0; i < p.rows; ++i) {
    std::vector<A> dp(std::size_t(p.cols));
    if (!balance.empty() && packed[std::size_t(i)] >= 0) {
      const std::int64_t row = packed[std::size_t(i)];
      for (std::int64_t e = 0; e < p.cols; ++e) dp[std::size_t(e)] = balance(row, e);
    }
    A sum = 0, mixed = 0;  // of the chosen probabilities; times the gradients of their weights
    for (std::int64_t s = 0; s < k; ++s) {
      const A chosen_p = p(i, chosen[std::size_t(i * k + s)]);
      sum += chosen_p;
      mixed += chosen_p * dweights(i, s);
    }
    sum += A(weight_floor);
    for (std::int64_t s = 0; s < k; ++s) {
      dp[std::size_t(chosen[std::size_t(i * k + s)])] +=
          A(router.scaling) *
          (router.normalize ? (dweights(i, s) - mixed / sum) / sum : dweights(i, s));
    }
    A mean = 0;
    for (std::int64_t e = 0; e < p.cols; ++e) mean += dp[std::size_t(e)] * p(i, e);
    for (std::int64_t e = 0; e < p.cols; ++e) {
      dlogits(i, e) = router.sigmoid ? dp[std::size_t(e)] * p(i, e) * (A(1) - p(i, e))
                                     : p(i, e) * (dp[std::size_t(e)] - mean);
    }
  }
}

}  // namespace bdlm::reference
