// SPDX-License-Identifier: Apache-2.0
// Of the operations of a mixture of experts.
#include "kernels/checks.h"
#include "kernels/dispatch.h"

namespace bdlm {
namespace {

void check_router(const Router& router) {
  require(router.experts >= 1 && router.experts <= most_experts,
          "a router of {} experts is not possible: 1 to {}", router.experts, most_experts);
  require(router.groups >= 1 && router.experts % router.groups == 0 &&
              (router.groups == 1 || router.experts / router.groups >= 2),
          "a router's {} experts are not {} groups of 2 or more", router.experts, router.groups);
  require(router.best_groups >= 1 && router.best_groups <= router.groups,
          "a router cannot take {} of {} groups", router.best_groups, router.groups);
  const std::int64_t most = router.experts / router.groups * router.best_groups;
  require(router.chosen >= 1 && router.chosen <= most,
          "a router cannot choose {} experts: {} groups have {}", router.chosen,
          router.best_groups, most);
}

std::int64_t rows_of_each(const char* operation, const Tensor& a,
                          std::span<const std::int64_t> rows, const Tensor& w) {
  std::int64_t covered = 0;
  for (const std::int64_t count : rows) {
    require(count >= 0, "{}: a group of {} rows", operation, count);
    covered += count;
  }
  require(covered == a.rows, "{}: the groups have {} of {} rows", operation, covered, a.rows);
  const auto groups = static_cast<std::int64_t>(rows.size());
  require(groups > 0 ? w.rows % groups == 0 : w.rows == 0,
          "{}: {} rows of weights are not a matrix for each of {} groups", operation, w.rows,
          groups);
  return groups > 0 ? w.rows / groups : 0;
}

}  // namespace

std::int64_t check_grouped_gemm(const Tensor& a, std::span<const std::int64_t> rows,
                                const Tensor& w, Transpose trans_w, const Tensor& c) {
  const std::int64_t each = rows_of_each("grouped_gemm", a, rows, w);
  const bool turned = trans_w == Transpose::yes;
  if (!rows.empty()) {
    require(a.cols == (turned ? w.cols : each), "grouped_gemm: a has {} columns, expected {}",
            a.cols, turned ? w.cols : each);
    require_shape("grouped_gemm: c", c, a.rows, turned ? each : w.cols);
  }
  require_dtype("grouped_gemm: w", w, a.dtype);
  require(c.dtype == a.dtype || c.dtype == accumulate_type(a.dtype),
          "grouped_gemm: c is {}, a is {}", name_of(c.dtype), name_of(a.dtype));
  return each;
}

std::int64_t check_grouped_gemm_gradient(const Tensor& dy, const Tensor& x,
                                         std::span<const std::int64_t> rows, const Tensor& dw) {
  const std::int64_t each = rows_of_each("grouped_gemm_gradient", dy, rows, dw);
  require_matrix("grouped_gemm_gradient: x", x, dy.rows, x.cols, dy.dtype);
  if (!rows.empty()) {
    require(each == dy.cols, "grouped_gemm_gradient: dy has {} columns, expected {}", dy.cols,
            each);
    require(dw.cols == x.cols, "grouped_gemm_gradient: x has {} columns, expected {}", x.cols,
            dw.cols);
  }
  require_dtype("grouped_gemm_gradient: dw", dw, accumulate_type(dy.dtype));
  return each;
}

void check_weighted_swiglu(const Tensor& gate_up, const Tensor& weight, const Tensor& y) {
  require_matrix("weighted_swiglu_forward: gate_up", gate_up, y.rows, 2 * y.cols, y.dtype);
  require_matrix("weighted_swiglu_forward: weight", weight, y.rows, 1, accumulate_type(y.dtype));
}

void check_weighted_swiglu_gradient(const Tensor& gate_up, const Tensor& weight, const Tensor& dy,
                                    const Tensor& dgate_up, const Tensor& dweight,
                                    const Tensor& y) {
  const DType sum = accumulate_type(dy.dtype);
  require_matrix("weighted_swiglu_backward: gate_up", gate_up, dy.rows, 2 * dy.cols, dy.dtype);
  require_matrix("weighted_swiglu_backward: weight", weight, dy.rows, 1, sum);
  require_matrix("weighted_swiglu_backward: dgate_up", dgate_up, dy.rows, 2 * dy.cols, dy.dtype);
  require_matrix("weighted_swiglu_backward: dweight", dweight, dy.rows, 1, sum);
  require_matrix("weighted_swiglu_backward: y", y, dy.rows, dy.cols, dy.dtype);
}

void check_router_probabilities(const Router& router, const Tensor& logits,
                                const Tensor& probabilities) {
  check_router(router);
  require_shape("router: logits", logits, logits.rows, router.experts);
  require_matrix("router: probabilities", probabilities, logits.rows, router.experts,
                 logits.dtype);
}

void check_choose_experts(const Router& router, const Tensor& logits, const Tensor& bias,
                          const Tensor& probabilities, std::span<const std::int32_t> chosen) {
  check_router_probabilities(router, logits, probabilities);
  if (!bias.empty()) require_matrix("router: bias", bias, 1, router.experts, logits.dtype);
  require(static_cast<std::int64_t>(chosen.size()) == logits.rows * router.chosen,
          "choose_experts: a list of {} for {} rows of {} experts", chosen.size(), logits.rows,
          router.chosen);
}

void check_expert_weights(const Router& router, const Tensor& probabilities,
                          const Tensor& weights) {
  check_router(router);
  require_shape("expert_weights: probabilities", probabilities, weights.rows, router.experts);
  require_matrix("expert_weights: weights", weights, weights.rows, router.chosen,
                 probabilities.dtype);
}

void check_balance_sums(const Router& router, const Tensor& probabilities, const Tensor& sums) {
  check_router(router);
  require_shape("balance_sums: probabilities", probabilities, probabilities.rows, router.experts);
  require_matrix("balance_sums: sums", sums, sums.rows, 2 * router.experts, probabilities.dtype);
}

void check_router_gradient(const Router& router, const Tensor& probabilities,
                           const Tensor& dweights, const Tensor& balance,
                           const std::int32_t* packed, const Tensor& dlogits) {
  check_router(router);
  require_shape("router_backward: probabilities", probabilities, dlogits.rows, router.experts);
  require_matrix("router_backward: dweights", dweights, dlogits.rows, router.chosen,
                 probabilities.dtype);
  require_matrix("router_backward: dlogits", dlogits, dlogits.rows, router.experts,
                 probabilities.dtype);
  if (balance.empty()) return;
  require_matrix("router_backward: balance", balance, balance.rows, router.experts,
                 probabilities.dtype);
  require(packed != nullptr || dlogits.rows == 0,
          "router_backward: a balance gradient without the packed row of each row");
}

}  // namespace bdlm
