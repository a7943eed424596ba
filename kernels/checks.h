// SPDX-License-Identifier: Apache-2.0
// The shape and dtype checks of the operations of Device, one truth for all backends. Each throws
// Error that names the operation and the argument. Indices in device memory are not looked at.
#pragma once

#include <span>

#include "kernels/device.h"

namespace bdlm {

void check_gather_rows(const Tensor& x, const Tensor& y);
void check_scatter_add_rows(const Tensor& x, const Tensor& y);
void check_add_gathered_rows(const Tensor& x, std::int64_t count, const Tensor& y);

struct ProductSizes {
  std::int64_t m = 0, n = 0, k = 0;  // c [m, n], summed over k
};
ProductSizes check_gemm(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
                        const Tensor& c);
void check_gemm_addend(const Tensor& addend, const Tensor& c);
void check_bias(const Tensor& bias, const Tensor& y);
void check_bias_gradient(const Tensor& dy, const Tensor& dbias);

void check_embedding(const Tensor& table, const Tensor& y);
void check_embedding_gradient(std::span<const std::int32_t> ids, const Tensor& dy,
                              const Tensor& dtable);

void check_rms_norm(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& rstd);
void check_rms_norm_gradient(const Tensor& x, const Tensor& weight, const Tensor& rstd,
                             const Tensor& dy, const Tensor& dx, const Tensor& dweight);

void check_head_rotary(const HeadRotary& args, const Tensor& x, const Tensor& y,
                       const Tensor& rstd);
void check_head_rotary_gradient(const HeadRotary& args, const Tensor& x, const Tensor& rstd,
                                const Tensor& dy, const Tensor& dx, const Tensor& dweight);

void check_swiglu(const Tensor& gate_up, const Tensor& y);
void check_swiglu_gradient(const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up);

// checks_mixture.cpp
/// Rows of each group's matrix.
std::int64_t check_grouped_gemm(const Tensor& a, std::span<const std::int64_t> rows,
                                const Tensor& w, Transpose trans_w, const Tensor& c);
std::int64_t check_grouped_gemm_gradient(const Tensor& dy, const Tensor& x,
                                         std::span<const std::int64_t> rows, const Tensor& dw);
void check_weighted_swiglu(const Tensor& gate_up, const Tensor& weight, const Tensor& y);
void check_weighted_swiglu_gradient(const Tensor& gate_up, const Tensor& weight, const Tensor& dy,
                                    const Tensor& dgate_up, const Tensor& dweight, const Tensor& y);
void check_router_probabilities(const Router& router, const Tensor& logits,
                                const Tensor& probabilities);
void check_choose_experts(const Router& router, const Tensor& logits, const Tensor& bias,
                          const Tensor& probabilities, std::span<const std::int32_t> chosen);
void check_expert_weights(const Router& router, const Tensor& probabilities, const Tensor& weights);
void check_balance_sums(const Router& router, const Tensor& probabilities, const Tensor& sums);
void check_router_gradient(const Router& router, const Tensor& probabilities,
                           const Tensor& dweights, const Tensor& balance,
                           const std::int32_t* packed, const Tensor& dlogits);

void check_attention(const AttentionShape& shape, const Tensor& q,
                     std::span<const KeySource> sources, const Tensor& out, const Tensor& lse);
void check_attention_delta(const AttentionShape& shape, const Tensor& out, const Tensor& dout,
                           const Tensor& delta);
void check_attention_gradient(const AttentionShape& shape, const Tensor& q,
                              const KeySource& source, const Tensor& lse, const Tensor& dout,
                              const Tensor& delta, const Tensor& dq, const Tensor& dkey,
                              const Tensor& dvalue);

void check_cross_entropy(const Tensor& logits, const Tensor& weight, std::int64_t excluded,
                         const Tensor& loss, const Tensor& dlogits);
void check_cross_entropy_statistics(const Tensor& logits, std::int64_t first,
                                    const Tensor& statistics);
void check_merge_cross_entropy(const Tensor& parts, const Tensor& statistics, const Tensor& loss);
void check_cross_entropy_gradient(const Tensor& logits, std::int64_t first, const Tensor& weight,
                                  const Tensor& statistics, const Tensor& dlogits);
void check_adamw(const AdamW& args, std::span<const DecayRun> runs, const Tensor& master,
                 const Tensor& gradient, const Tensor& first, const Tensor& second,
                 const Tensor& compute);

}  // namespace bdlm
