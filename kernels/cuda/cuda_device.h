// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: one GPU, one stream for all computation. The same source is built against the
// emulation for tests (BDLM_EMU). One override an operation; bodies are in the *_op(s).cpp files.
#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/attention_ops.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/staging.h"
#include "kernels/device.h"
#include "kernels/memory_pool.h"

namespace bdlm::cuda {

/// Device memory, allocated in the order of a stream: giving a block back never waits.
class DeviceMemory final : public MemorySource {
 public:
  explicit DeviceMemory(Stream stream) : stream_(stream) {}
  void* allocate(std::size_t bytes) override;
  void free(void* data) noexcept override;
  std::string remark() const override;  // free and total memory of the device

 private:
  Stream stream_;
};

/// Owns a stream; destroyed after everything that was enqueued on it.
class OwnedStream {
 public:
  OwnedStream();
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;
  operator Stream() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  /// Throws Error when there is no such device or driver.
  explicit CudaDevice(int index);
  ~CudaDevice() override;

  Stream stream() const { return stream_; }
  int index() const { return index_; }
  Staging& staging() { return staging_; }

  std::string name() const override { return name_; }
  bool shares_host_memory() const override { return false; }
  void synchronize() override;

  void* acquire(std::size_t bytes, Memory kind) override { return pool_.acquire(bytes, kind); }
  void release(void* data, std::size_t bytes, Memory kind) noexcept override {
    pool_.release(data, bytes, kind);
  }
  MemoryUse memory() const override { return pool_.use(); }
  void reset_peak() override { pool_.reset_peak(); }
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
  std::shared_ptr<IntervalNotes> note_intervals(std::span<const Interval> rows,
                                                std::int64_t keys) override;

 private:
  class HostWaits;  // for the device, while it lives
  Buffer scratch(std::int64_t rows, std::int64_t cols, DType dtype) {
    return allocate(rows, cols, dtype, Memory::workspace);
  }
  void fetch(const void* device, void* host, std::size_t bytes);  // waits
  AttentionChoice choice(const AttentionShape& shape, std::initializer_list<Tensor> rows) const;

  int index_;
  int compute_ = 0;  // 10 * major + minor
  std::string name_;
  OwnedStream stream_;
  DeviceMemory memory_;
  MemoryPool pool_;
  Staging staging_;
  std::unique_ptr<Products> products_;
};

}  // namespace bdlm::cuda
