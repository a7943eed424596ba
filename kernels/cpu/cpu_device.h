// SPDX-License-Identifier: Apache-2.0
// The CPU backend. One override an operation; the body of each is in the file named after it.
#pragma once

#include <memory>
#include <string>

#include "kernels/cpu/host_memory.h"
#include "kernels/device.h"

namespace bdlm {

class ProductCache;
struct ProductShape;

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(int threads);  // at least 1
  ~CpuDevice() override;

  int threads() const { return threads_; }

  std::string name() const override;
  bool shares_host_memory() const override { return true; }
  void synchronize() override {}

  void* acquire(std::size_t bytes, Memory kind) override;
  void release(void* data, std::size_t bytes, Memory kind) noexcept override;
  MemoryUse memory() const override;
  void reset_peak() override;
  void copy_to_host(Tensor source, void* host) override;
  void copy_from_host(const void* host, Tensor target) override;

  void zero(Tensor x) override;
  void copy(Tensor x, Tensor y) override;
  void add(Tensor x, Tensor y) override;
  void gather_rows(Tensor x, const std::int32_t* rows, Tensor y) override;
  void scatter_add_rows(Tensor x, const std::int32_t* rows, Tensor y) override;
  void add_gathered_rows(Tensor x, const std::int32_t* places, std::int64_t count,
                         Tensor y) override;

  void gemm(Tensor a, Transpose trans_a, Tensor b, Transpose trans_b, Tensor c,
            Accumulate accumulate) override;
  void gemm_add(Tensor a, Transpose trans_a, Tensor b, Transpose trans_b, Tensor addend,
                Tensor c) override;
  void grouped_gemm(Tensor a, std::span<const std::int64_t> rows, Tensor w, Transpose trans_w,
                    Tensor c) override;
  void grouped_gemm_gradient(Tensor dy, Tensor x, std::span<const std::int64_t> rows,
                             Tensor dw) override;
  void add_bias(Tensor bias, Tensor y) override;
  void bias_gradient(Tensor dy, Tensor dbias) override;

  void embedding_forward(const std::int32_t* ids, Tensor table, Tensor y) override;
  void embedding_backward(std::span<const std::int32_t> ids, Tensor dy, Tensor dtable) override;

  void rms_norm_forward(Tensor x, Tensor weight, double eps, Tensor y, Tensor rstd) override;
  void rms_norm_backward(Tensor x, Tensor weight, Tensor rstd, Tensor dy, Tensor dx,
                         Tensor dweight) override;

  void head_rotary_forward(const HeadRotary& args, Tensor x, Tensor y, Tensor rstd) override;
  void head_rotary_backward(const HeadRotary& args, Tensor x, Tensor rstd, Tensor dy, Tensor dx,
                            Tensor dweight) override;

  void swiglu_forward(Tensor gate_up, Tensor y) override;
  void swiglu_backward(Tensor gate_up, Tensor dy, Tensor dgate_up) override;
  void weighted_swiglu_forward(Tensor gate_up, Tensor weight, Tensor y) override;
  void weighted_swiglu_backward(Tensor gate_up, Tensor weight, Tensor dy, Tensor dgate_up,
                                Tensor dweight, Tensor y) override;

  void choose_experts(const Router& router, Tensor logits, Tensor bias, Tensor probabilities,
                      std::span<std::int32_t> chosen) override;
  void router_probabilities(const Router& router, Tensor logits, Tensor probabilities) override;
  void expert_weights(const Router& router, Tensor probabilities, const std::int32_t* chosen,
                      Tensor weights) override;
  void balance_sums(const Router& router, Tensor probabilities, const std::int32_t* chosen,
                    const std::int32_t* packed, Tensor sums) override;
  void router_backward(const Router& router, Tensor probabilities, const std::int32_t* chosen,
                       Tensor dweights, Tensor balance, const std::int32_t* packed,
                       Tensor dlogits) override;

  void attention_forward(const AttentionShape& shape, Tensor q, std::span<const KeySource> sources,
                         Tensor out, Tensor lse, bool resume) override;
  void attention_delta(const AttentionShape& shape, Tensor out, Tensor dout, Tensor delta) override;
  void attention_backward(const AttentionShape& shape, Tensor q, const KeySource& source,
                          Tensor lse, Tensor dout, Tensor delta, Tensor dq, Tensor dkey,
                          Tensor dvalue) override;

  void cross_entropy(Tensor logits, const std::int32_t* targets, Tensor weight,
                     std::int64_t excluded, Tensor loss, Tensor dlogits) override;
  void cross_entropy_statistics(Tensor logits, std::int64_t first, const std::int32_t* targets,
                                std::int64_t excluded, Tensor statistics) override;
  void merge_cross_entropy(Tensor parts, Tensor statistics, Tensor loss) override;
  void cross_entropy_gradient(Tensor logits, std::int64_t first, const std::int32_t* targets,
                              Tensor weight, std::int64_t excluded, Tensor statistics,
                              Tensor dlogits) override;

  double squared_norm(Tensor x) override;
  void adamw(const AdamW& args, const DecayRuns& runs, Tensor master, Tensor gradient,
             Tensor first, Tensor second, Tensor compute) override;

 protected:
  std::shared_ptr<void> upload_bytes(const void* host, std::size_t bytes) override;
  std::shared_ptr<IntervalNotes> note_intervals(std::span<const Interval>, std::int64_t) override {
    return nullptr;
  }

 private:
  void product(const ProductShape& shape, Tensor a, Tensor b, Tensor c);

  /// One zeroed row of `cols` sums a thread, for reductions over rows (see add_partials).
  Buffer partial_sums(int parts, std::int64_t cols, DType dtype);
  /// target [1, cols] += the rows of `partials`, in their order.
  void add_partials(const Tensor& partials, const Tensor& target);

  int threads_;
  HostMemory host_;
  MemoryPool pool_{host_};
  std::unique_ptr<ProductCache> products_;  // oneDNN primitives by shape (gemm.cpp)
};

}  // namespace bdlm
