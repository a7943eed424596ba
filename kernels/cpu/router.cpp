// SPDX-License-Identifier: Apache-2.0
// A mixture's router. Threads share the rows, or the experts where sums run over rows: so sums are
// those of one thread.
#include <limits>
#include <vector>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace bdlm {
namespace {

template <class A>
constexpr A infinity = std::numeric_limits<A>::infinity();

template <class A>
void row_probabilities(const Router& router, const A* x, A* p) {
  const std::int64_t experts = router.experts;
  if (router.sigmoid) {
#pragma omp simd
    for (std::int64_t e = 0; e < experts; ++e) p[e] = A(1) / (A(1) + fast_exp(-x[e]));
    return;
  }
  A largest = -infinity<A>, sum = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t e = 0; e < experts; ++e) largest = x[e] > largest ? x[e] : largest;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t e = 0; e < experts; ++e) {
    const A power = fast_exp(x[e] - largest);
    p[e] = power;
    sum += power;
  }
#pragma omp simd
  for (std::int64_t e = 0; e < experts; ++e) p[e] /= sum;
}

/// NaN stands for what is out.
template <class A>
constexpr A out = std::numeric_limits<A>::quiet_NaN();

/// The first of the largest in [first, last); there is one.
template <class A>
std::int64_t first_largest(const A* choice, std::int64_t first, std::int64_t last) {
  while (std::isnan(choice[first])) ++first;
  std::int64_t best = first;
  for (std::int64_t e = first + 1; e < last; ++e) best = choice[e] > choice[best] ? e : best;
  return best;
}

/// Leaves the experts of the best groups in `choice`.
template <class A>
void keep_best_groups(const Router& router, A* choice, A* sums) {
  const std::int64_t size = router.experts / router.groups;
  for (std::int64_t g = 0; g < router.groups; ++g) {
    const std::int64_t first = g * size, last = first + size;
    const std::int64_t best = first_largest(choice, first, last);
    const A value = choice[best];
    choice[best] = out<A>;
    const A sum = value + choice[first_largest(choice, first, last)];
    choice[best] = value;
    sums[g] = std::isnan(sum) ? -infinity<A> : sum;
  }
  for (std::int64_t s = 0; s < router.best_groups; ++s) {
    sums[first_largest(sums, 0, router.groups)] = out<A>;
  }
  for (std::int64_t e = 0; e < router.experts; ++e) {
    if (!std::isnan(sums[e / size])) choice[e] = out<A>;
  }
}

/// scratch [2 E]
template <class A>
void row_choice(const Router& router, const A* p, const A* bias, A* scratch,
                std::int32_t* chosen) {
  for (std::int64_t e = 0; e < router.experts; ++e) {
    const A x = bias != nullptr ? p[e] + bias[e] : p[e];
    scratch[e] = std::isnan(x) ? -infinity<A> : x;
  }
  if (router.groups > 1) keep_best_groups(router, scratch, scratch + router.experts);
  for (std::int64_t s = 0; s < router.chosen; ++s) {
    const std::int64_t best = first_largest(scratch, 0, router.experts);
    chosen[s] = static_cast<std::int32_t>(best);
    scratch[best] = out<A>;
  }
}

/// p and dlogits may be the same; scratch [2 k]; balance may be null.
template <class A>
void row_gradient(const Router& router, const A* p, const std::int32_t* chosen, const A* dweights,
                  const A* balance, A* scratch, A* dlogits) {
  const std::int64_t k = router.chosen;
  A* chosen_p = scratch;
  A* dp = scratch + k;
  A sum = 0, mixed = 0;
  for (std::int64_t s = 0; s < k; ++s) {
    chosen_p[s] = p[chosen[s]];
    sum += chosen_p[s];
    mixed += chosen_p[s] * dweights[s];
  }
  sum += static_cast<A>(weight_floor);
  A mean = 0;
  for (std::int64_t s = 0; s < k; ++s) {
    const A through = router.normalize ? (dweights[s] - mixed / sum) / sum : dweights[s];
    dp[s] = static_cast<A>(router.scaling) * through;
    mean += dp[s] * chosen_p[s];
  }
  if (balance != nullptr) {
#pragma omp simd reduction(+ : mean)
    for (std::int64_t e = 0; e < router.experts; ++e) mean += balance[e] * p[e];
  }
  if (router.sigmoid) mean = 0;
#pragma omp simd
  for (std::int64_t e = 0; e < router.experts; ++e) {
    const A slope = router.sigmoid ? p[e] * (A(1) - p[e]) : p[e];
    dlogits[e] = slope * ((balance != nullptr ? balance[e] : A(0)) - mean);
  }
  for (std::int64_t s = 0; s < k; ++s) {
    const A slope = router.sigmoid ? chosen_p[s] * (A(1) - chosen_p[s]) : chosen_p[s];
    const A whole = dp[s] + (balance != nullptr ? balance[chosen[s]] : A(0));
    dlogits[chosen[s]] = slope * (whole - mean);
  }
}

/// The packed rows that sums or gradients are of.
void require_packed(const char* operation, const std::int32_t* packed, std::int64_t rows,
                    std::int64_t limit) {
  for (std::int64_t i = 0; i < rows; ++i) {
    require(packed[i] < limit, "{}: row {} belongs to the packed row {} of {}", operation, i,
            packed[i], limit);
  }
}

}  // namespace

void CpuDevice::choose_experts(const Router& router, Tensor logits, Tensor bias,
                               Tensor probabilities, std::span<std::int32_t> chosen) {
  check_choose_experts(router, logits, bias, probabilities, chosen);
  dispatch_sums(logits.dtype, [&]<class A>() {
    const Rows<A> in(logits), p(probabilities);
    const A* added = bias.empty() ? nullptr : bias.as<A>();
    std::vector<A> scratch(static_cast<std::size_t>(threads_ * 2 * router.experts));
    parallel_ranges(threads_, logits.rows, logits.size() * router.chosen,
                    [&](int part, std::int64_t first, std::int64_t last) {
                      A* mine = scratch.data() + part * 2 * router.experts;
                      for (std::int64_t i = first; i < last; ++i) {
                        row_probabilities(router, in[i], p[i]);
                        row_choice(router, p[i], added, mine, chosen.data() + i * router.chosen);
                      }
                    });
  });
}

void CpuDevice::router_probabilities(const Router& router, Tensor logits, Tensor probabilities) {
  check_router_probabilities(router, logits, probabilities);
  dispatch_sums(logits.dtype, [&]<class A>() {
    const Rows<A> in(logits), p(probabilities);
    parallel_ranges(threads_, logits.rows, logits.size(),
                    [&](int, std::int64_t first, std::int64_t last) {
                      for (std::int64_t i = first; i < last; ++i)
                        row_probabilities(router, in[i], p[i]);
                    });
  });
}

void CpuDevice::expert_weights(const Router& router, Tensor probabilities,
                               const std::int32_t* chosen, Tensor weights) {
  check_expert_weights(router, probabilities, weights);
  require_indices("expert_weights: chosen", chosen, weights.size(), router.experts);
  dispatch_sums(weights.dtype, [&]<class A>() {
    const Rows<A> in(probabilities), to(weights);
    parallel_ranges(threads_, weights.rows, weights.size(),
                    [&](int, std::int64_t first, std::int64_t last) {
                      for (std::int64_t i = first; i < last; ++i) {
                        const std::int32_t* experts = chosen + i * router.chosen;
                        A sum = 0;
                        for (std::int64_t s = 0; s < router.chosen; ++s) sum += in[i][experts[s]];
                        sum = router.normalize ? sum + static_cast<A>(weight_floor) : A(1);
                        for (std::int64_t s = 0; s < router.chosen; ++s)
                          to[i][s] = in[i][experts[s]] / sum * static_cast<A>(router.scaling);
                      }
                    });
  });
}

void CpuDevice::balance_sums(const Router& router, Tensor probabilities,
                             const std::int32_t* chosen, const std::int32_t* packed, Tensor sums) {
  check_balance_sums(router, probabilities, sums);
  const std::int64_t rows = probabilities.rows, experts = router.experts, k = router.chosen;
  require_indices("balance_sums: chosen", chosen, rows * k, experts);
  require_packed("balance_sums", packed, rows, sums.rows);
  dispatch_sums(sums.dtype, [&]<class A>() {
    const Rows<A> in(probabilities), to(sums);
    parallel_ranges(threads_, experts, probabilities.size(),
                    [&](int, std::int64_t first, std::int64_t last) {
                      for (std::int64_t i = 0; i < rows; ++i) {
                        if (packed[i] < 0) continue;
                        A* times = to[packed[i]];
                        A* total = times + experts;
                        for (std::int64_t s = 0; s < k; ++s) {
                          const std::int32_t e = chosen[i * k + s];
                          if (e >= first && e < last) times[e] += A(1);
                        }
                        const A* p = in[i];
#pragma omp simd
                        for (std::int64_t e = first; e < last; ++e) total[e] += p[e];
                      }
                    });
  });
}

void CpuDevice::router_backward(const Router& router, Tensor probabilities,
                                const std::int32_t* chosen, Tensor dweights, Tensor balance,
                                const std::int32_t* packed, Tensor dlogits) {
  check_router_gradient(router, probabilities, dweights, balance, packed, dlogits);
  const std::int64_t k = router.chosen;
  require_indices("router_backward: chosen", chosen, dweights.size(), router.experts);
  if (!balance.empty()) require_packed("router_backward", packed, dlogits.rows, balance.rows);
  dispatch_sums(dlogits.dtype, [&]<class A>() {
    const Rows<A> in(probabilities), weights(dweights), to(dlogits);
    std::vector<A> scratch(static_cast<std::size_t>(threads_ * 2 * k));
    parallel_ranges(threads_, dlogits.rows, dlogits.size(),
                    [&](int part, std::int64_t first, std::int64_t last) {
                      for (std::int64_t i = first; i < last; ++i) {
                        const bool balanced = !balance.empty() && packed[i] >= 0;
                        row_gradient(router, in[i], chosen + i * k, weights[i],
                                     balanced ? Rows<A>(balance)[packed[i]] : nullptr,
                                     scratch.data() + part * 2 * k, to[i]);
                      }
                    });
  });
}

}  // namespace bdlm
