// SPDX-License-Identifier: Apache-2.0
// A device that computes nothing and has no memory: it counts what is asked for by kind. Running
// the model on it says what a step will need, whatever the size, without a second truth about what
// each layer keeps. What a backend asks for inside an operation is not seen.
#pragma once

#include "kernels/device.h"

namespace bdlm {

class CountingDevice final : public Device {
 public:
  std::string name() const override { return "counting"; }
  bool shares_host_memory() const override { return false; }
  void synchronize() override {}

  void* acquire(std::size_t bytes, Memory kind) override;
  void release(void* data, std::size_t bytes, Memory kind) noexcept override;
  MemoryUse memory() const override { return use_; }
  void reset_peak() override;
  void copy_to_host(Tensor source, void* host) override;  // zeros
  void copy_from_host(const void*, Tensor) override {}

  void zero(Tensor) override {}
  void copy(Tensor, Tensor) override {}
  void add(Tensor, Tensor) override {}
  void gather_rows(Tensor, const std::int32_t*, Tensor) override {}
  void scatter_add_rows(Tensor, const std::int32_t*, Tensor) override {}
  void add_gathered_rows(Tensor, const std::int32_t*, std::int64_t, Tensor) override {}
  void gemm(Tensor, Transpose, Tensor, Transpose, Tensor, Accumulate) override {}
  void gemm_add(Tensor, Transpose, Tensor, Transpose, Tensor, Tensor) override {}
  void grouped_gemm(Tensor, std::span<const std::int64_t>, Tensor, Transpose, Tensor) override {}
  void grouped_gemm_gradient(Tensor, Tensor, std::span<const std::int64_t>, Tensor) override {}
  void add_bias(Tensor, Tensor) override {}
  void bias_gradient(Tensor, Tensor) override {}
  void embedding_forward(const std::int32_t*, Tensor, Tensor) override {}
  void embedding_backward(std::span<const std::int32_t>, Tensor, Tensor) override {}
  void rms_norm_forward(Tensor, Tensor, double, Tensor, Tensor) override {}
  void rms_norm_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void head_rotary_forward(const HeadRotary&, Tensor, Tensor, Tensor) override {}
  void head_rotary_backward(const HeadRotary&, Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  void swiglu_forward(Tensor, Tensor) override {}
  void swiglu_backward(Tensor, Tensor, Tensor) override {}
  void weighted_swiglu_forward(Tensor, Tensor, Tensor) override {}
  void weighted_swiglu_backward(Tensor, Tensor, Tensor, Tensor, Tensor, Tensor) override {}
  /// Every expert as often as any other.
  void choose_experts(const Router& router, Tensor logits, Tensor bias, Tensor probabilities,
                      std::span<std::int32_t> chosen) override;
  void router_probabilities(const Router&, Tensor, Tensor) override {}
  void expert_weights(const Router&, Tensor, const std::int32_t*, Tensor) override {}
  void balance_sums(const Router&, Tensor, const std::int32_t*, const std::int32_t*,
                    Tensor) override {}
  void router_backward(const Router&, Tensor, const std::int32_t*, Tensor, Tensor,
                       const std::int32_t*, Tensor) override {}
  void attention_forward(const AttentionShape&, Tensor, std::span<const KeySource>, Tensor, Tensor,
                         bool) override {}
  void attention_delta(const AttentionShape&, Tensor, Tensor, Tensor) override {}
  void attention_backward(const AttentionShape&, Tensor, const KeySource&, Tensor, Tensor, Tensor,
                          Tensor, Tensor, Tensor) override {}
  void cross_entropy(Tensor, const std::int32_t*, Tensor, std::int64_t, Tensor, Tensor) override {}
  void cross_entropy_statistics(Tensor, std::int64_t, const std::int32_t*, std::int64_t,
                                Tensor) override {}
  void merge_cross_entropy(Tensor, Tensor, Tensor) override {}
  void cross_entropy_gradient(Tensor, std::int64_t, const std::int32_t*, Tensor, std::int64_t,
                              Tensor, Tensor) override {}
  double squared_norm(Tensor) override { return 0; }
  void adamw(const AdamW&, const DecayRuns&, Tensor, Tensor, Tensor, Tensor,
             Tensor) override {}

 protected:
  std::shared_ptr<void> upload_bytes(const void* host, std::size_t bytes) override;
  std::shared_ptr<IntervalNotes> note_intervals(std::span<const Interval>, std::int64_t) override {
    return nullptr;
  }

 private:
  MemoryUse use_;
  std::int64_t total_ = 0;
};

}  // namespace bdlm
