// SPDX-License-Identifier: Apache-2.0
// The backend boundary: everything that the layers above ask of a device. Two implementations, CPU
// (kernels/cpu) and CUDA (a plugin); the layers never see which one runs.
//
// Rules for every operation:
//  * T is the compute dtype (f64, f32, bf16), A = accumulate_type(T). Unless a line says otherwise
//    activations and weights are T; statistics, gradients of parameters and sums are A.
//  * Operations are enqueued in order; results are visible to later operations and, after
//    synchronize(), to the host. On the CPU each call has finished when it returns.
//  * Zero rows are normal input and do nothing. Shapes are checked, a mismatch throws Error.
//  * Outputs must not overlap inputs unless the line says "may alias".
//  * Deterministic: the same inputs give the same bits for a fixed number of threads. No atomics.
//  * Pointers to indices, ids and intervals are device memory (see upload); spans are the host's.
// The plain definition of each operation is in kernels/reference/.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/attention.h"
#include "kernels/rotary.h"
#include "kernels/router.h"
#include "kernels/tensor.h"

namespace bdlm {

/// What memory is for; peaks are reported by kind.
enum class Memory : std::uint8_t {
  parameters,
  gradients,
  optimizer,
  activations,
  exchange,
  workspace,
};
inline constexpr std::size_t memory_kinds = 6;
const char* name_of(Memory kind);

struct MemoryUse {
  std::array<std::int64_t, memory_kinds> bytes{};         // now
  std::array<std::int64_t, memory_kinds> peak_by_kind{};  // each kind's own peak
  std::int64_t peak = 0;                                  // of the sum
};

class Device;

/// Owns one matrix in device memory and gives it back to the pool. Empty buffers are allowed.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, Tensor tensor, std::size_t bytes, Memory kind)
      : device_(device), tensor_(tensor), bytes_(bytes), kind_(kind) {}
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer();

  const Tensor& tensor() const { return tensor_; }
  operator const Tensor&() const { return tensor_; }
  explicit operator bool() const { return tensor_.data != nullptr; }
  void reset() { *this = Buffer(); }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(tensor_, other.tensor_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
  }

  Device* device_ = nullptr;
  Tensor tensor_;
  std::size_t bytes_ = 0;
  Memory kind_ = Memory::workspace;
};

/// A list of numbers for a kernel (row lists, ids, positions, intervals). On a device that shares
/// the host's memory it is a view: the host's vector must outlive it.
template <class T>
struct DeviceList {
  const T* data = nullptr;
  std::int64_t count = 0;
  std::shared_ptr<void> storage;  // null for a view
};

/// The intervals of all query rows over one key source. On a device that shares the host's memory a
/// view, as above.
struct IntervalList {
  DeviceList<Interval> rows;
  std::shared_ptr<IntervalNotes> notes;
};

enum class Transpose : std::uint8_t { no, yes };
enum class Accumulate : std::uint8_t { no, yes };

struct AdamW {
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  std::int64_t step = 1;      // counts from 1, for the bias correction
  double gradient_scale = 1;  // clipping
};

/// A run of elements of a flat parameter range and whether weight decay applies to it.
struct DecayRun {
  std::int64_t begin = 0, count = 0;
  bool decay = false;
};

/// Runs that cover a range one after another, with their lists for kernels: made once, used in every
/// update.
struct DecayRuns {
  std::vector<DecayRun> runs;
  DeviceList<std::int64_t> begin;   // of each run, then the end; empty where host memory is shared
  DeviceList<std::uint8_t> decay;   // of each run
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;  // "cpu, 2 threads", "cuda:0 NVIDIA H200"
  virtual bool shares_host_memory() const = 0;
  virtual void synchronize() = 0;
  /// Called with true before the host waits for the device and with false after; for a watchdog.
  std::function<void(bool begins)> waiting;

  // ---- memory: freed blocks are kept by size, so that a steady step allocates nothing
  /// Not initialised. Rows are aligned to 64 bytes only at the start of the matrix.
  Buffer allocate(std::int64_t rows, std::int64_t cols, DType dtype, Memory kind);
  virtual void* acquire(std::size_t bytes, Memory kind) = 0;
  virtual void release(void* data, std::size_t bytes, Memory kind) noexcept = 0;
  virtual MemoryUse memory() const = 0;
  virtual void reset_peak() = 0;

  virtual void copy_to_host(Tensor source, void* host) = 0;  // host: contiguous, same dtype
  virtual void copy_from_host(const void* host, Tensor target) = 0;
  /// A list in device memory; see DeviceList.
  template <class T>
  DeviceList<T> upload(std::span<const T> host) {
    const auto count = static_cast<std::int64_t>(host.size());
    if (shares_host_memory() || host.empty()) return {host.data(), count, nullptr};
    auto storage = upload_bytes(host.data(), host.size_bytes());
    return {static_cast<const T*>(storage.get()), count, std::move(storage)};
  }

  /// `keys`: rows of the source that the intervals index.
  IntervalList upload_intervals(std::span<const Interval> rows, std::int64_t keys) {
    return {upload(rows), shares_host_memory() ? nullptr : note_intervals(rows, keys)};
  }

  DecayRuns upload_decay(std::vector<DecayRun> runs);

  // ---- movement
  virtual void zero(Tensor x) = 0;
  virtual void copy(Tensor x, Tensor y) = 0;  // y = x, between any two dtypes and strides
  virtual void add(Tensor x, Tensor y) = 0;   // y += x, between any two dtypes and strides
  virtual void gather_rows(Tensor x, const std::int32_t* rows, Tensor y) = 0;  // y[i] = x[rows[i]]
  /// y[rows[i]] += x[i], rows distinct, i over x's rows; x and y may differ in dtype.
  virtual void scatter_add_rows(Tensor x, const std::int32_t* rows, Tensor y) = 0;
  /// y[i] += x[places[i * count]], ..., x[places[i * count + count - 1]], i over y's rows, in that
  /// order, rounded to y's dtype once at the end; x and y may differ in dtype.
  virtual void add_gathered_rows(Tensor x, const std::int32_t* places, std::int64_t count,
                                 Tensor y) = 0;

  // ---- products
  /// c = op(a) op(b), or c += op(a) op(b). a and b have dtype T; c has T or A.
  virtual void gemm(Tensor a, Transpose trans_a, Tensor b, Transpose trans_b, Tensor c,
                    Accumulate accumulate) = 0;
  /// c = op(a) op(b) + addend: a residual connection without a copy. addend has c's dtype.
  virtual void gemm_add(Tensor a, Transpose trans_a, Tensor b, Transpose trans_b, Tensor addend,
                        Tensor c) = 0;
  /// Rows of `a` in groups, one after another, each with a matrix of its own. rows: of each group;
  /// their sum is a.rows, groups may be empty. w: the groups' matrices one below the other, of
  /// w.rows / rows.size() rows each. c[group] (T or A) = a[group] w_g^T (trans_w yes), a[group] w_g.
  virtual void grouped_gemm(Tensor a, std::span<const std::int64_t> rows, Tensor w,
                            Transpose trans_w, Tensor c) = 0;
  /// dw (A), shaped like w: dw_g += dy[group]^T x[group].
  virtual void grouped_gemm_gradient(Tensor dy, Tensor x, std::span<const std::int64_t> rows,
                                     Tensor dw) = 0;
  virtual void add_bias(Tensor bias, Tensor y) = 0;         // y[i] += bias [1, cols]
  virtual void bias_gradient(Tensor dy, Tensor dbias) = 0;  // dbias [1, cols] A += sum of rows

  // ---- layers
  virtual void embedding_forward(const std::int32_t* ids, Tensor table, Tensor y) = 0;
  /// dtable (A) [ids[i]] += dy[i], in the order of i. The ids are the host's: a device sorts them.
  virtual void embedding_backward(std::span<const std::int32_t> ids, Tensor dy, Tensor dtable) = 0;

  /// y = x * rstd * weight, rstd [rows, 1] A = 1 / sqrt(mean(x^2) + eps). x is T or A.
  virtual void rms_norm_forward(Tensor x, Tensor weight, double eps, Tensor y, Tensor rstd) = 0;
  /// dx += (the gradient flows beside the residual), dweight [1, cols] A +=. x and dx: both T or A.
  virtual void rms_norm_backward(Tensor x, Tensor weight, Tensor rstd, Tensor dy, Tensor dx,
                                 Tensor dweight) = 0;

  /// y may alias x. rstd [rows, heads] A is written when there is a norm, else may be empty.
  virtual void head_rotary_forward(const HeadRotary& args, Tensor x, Tensor y, Tensor rstd) = 0;
  /// x is the forward's input (not read without a norm: may be empty). dy may be T or A; dx is T,
  /// overwritten, may alias a dy of the same dtype. dweight [1, head_dim] A += when there is a
  /// norm.
  virtual void head_rotary_backward(const HeadRotary& args, Tensor x, Tensor rstd, Tensor dy,
                                    Tensor dx, Tensor dweight) = 0;

  /// gate_up [rows, 2F] = [gate | up]; y [rows, F] = silu(gate) * up.
  virtual void swiglu_forward(Tensor gate_up, Tensor y) = 0;
  /// dgate_up may alias gate_up.
  virtual void swiglu_backward(Tensor gate_up, Tensor dy, Tensor dgate_up) = 0;

  /// y[i] = weight[i] * silu(gate) * up, weight [rows, 1] A: an expert's part of a row.
  virtual void weighted_swiglu_forward(Tensor gate_up, Tensor weight, Tensor y) = 0;
  /// Overwrites dgate_up (may alias gate_up), dweight [rows, 1] A, and y with the forward's output,
  /// for the product that follows; y may alias dy.
  virtual void weighted_swiglu_backward(Tensor gate_up, Tensor weight, Tensor dy, Tensor dgate_up,
                                        Tensor dweight, Tensor y) = 0;

  // ---- mixture of experts: kernels/router.h says what a router does
  /// logits [rows, E] A -> probabilities [rows, E] A (may alias logits), and every row's choice:
  /// chosen [rows * k] in host memory, experts by descending choice. bias [1, E] A takes part in the
  /// choice only; may be empty. Waits for the device.
  virtual void choose_experts(const Router& router, Tensor logits, Tensor bias,
                              Tensor probabilities, std::span<std::int32_t> chosen) = 0;
  /// As above for a choice that is known: probabilities only, without waiting.
  virtual void router_probabilities(const Router& router, Tensor logits, Tensor probabilities) = 0;
  /// weights [rows, k] A of the chosen experts [rows * k].
  virtual void expert_weights(const Router& router, Tensor probabilities,
                              const std::int32_t* chosen, Tensor weights) = 0;
  /// sums [packed rows, 2 E] A += of the rows i with packed[i] >= 0: how often each expert was
  /// chosen, then its probability. In the order of i, or of pieces of a length that rows gives.
  virtual void balance_sums(const Router& router, Tensor probabilities, const std::int32_t* chosen,
                            const std::int32_t* packed, Tensor sums) = 0;
  /// dlogits [rows, E] A (may alias probabilities) = the gradient through the weights, dweights
  /// [rows, k] A, and where packed[i] >= 0 through the probabilities themselves, whose gradient is
  /// balance [packed rows, E] A. balance may be empty, packed null then.
  virtual void router_backward(const Router& router, Tensor probabilities,
                               const std::int32_t* chosen, Tensor dweights, Tensor balance,
                               const std::int32_t* packed, Tensor dlogits) = 0;

  /// Attends q [rows, heads * head_dim] to all `sources`. out [rows, heads * head_dim] (T or A) is
  /// the normalised result, lse [rows, heads] (A) the natural logarithm of the sum of exponentials.
  /// resume: out and lse hold the result over other keys and are continued, as if all sources had
  /// been given at once (give out as A then). A row that has seen no key: out 0, lse -infinity.
  virtual void attention_forward(const AttentionShape& shape, Tensor q,
                                 std::span<const KeySource> sources, Tensor out, Tensor lse,
                                 bool resume) = 0;
  /// delta [rows, heads] (A) = sum over a head's channels of out * dout.
  virtual void attention_delta(const AttentionShape& shape, Tensor out, Tensor dout,
                               Tensor delta) = 0;
  /// Adds one source's part: dq, dkey, dvalue (A) +=. lse and delta are those of the whole row, so
  /// sources can be taken in any order. A row with lse -infinity contributes nothing.
  virtual void attention_backward(const AttentionShape& shape, Tensor q, const KeySource& source,
                                  Tensor lse, Tensor dout, Tensor delta, Tensor dq, Tensor dkey,
                                  Tensor dvalue) = 0;

  /// Cross-entropy of logits [rows, vocab] (A) against targets, and its gradient at once:
  /// loss[i] (A, [rows, 1]) = -log p(target), dlogits (T, may alias logits of the same dtype) =
  /// weight[i] * (p - onehot), weight [rows, 1] A. excluded >= 0: that id is no possible answer
  /// (logit -infinity, gradient 0).
  virtual void cross_entropy(Tensor logits, const std::int32_t* targets, Tensor weight,
                             std::int64_t excluded, Tensor loss, Tensor dlogits) = 0;

  /// The same where ranks share out the vocabulary: logits [rows, n] (A) are those of the ids
  /// [first, first + n), n may be 0. statistics [rows, 3] A = largest logit (none: -infinity), sum
  /// of exp(logit - largest), the target's logit (0: not among them; -infinity: excluded).
  virtual void cross_entropy_statistics(Tensor logits, std::int64_t first,
                                        const std::int32_t* targets, std::int64_t excluded,
                                        Tensor statistics) = 0;
  /// parts [ranks * rows, 3]: every rank's statistics, one rank after another. statistics [rows, 3]
  /// A = those of the whole, loss [rows, 1] A = log(sum) + largest - the target's logit.
  virtual void merge_cross_entropy(Tensor parts, Tensor statistics, Tensor loss) = 0;
  /// dlogits [rows, n] (T, may alias logits of the same dtype) = weight[i] * (p - onehot), with the
  /// statistics of the whole.
  virtual void cross_entropy_gradient(Tensor logits, std::int64_t first,
                                      const std::int32_t* targets, Tensor weight,
                                      std::int64_t excluded, Tensor statistics,
                                      Tensor dlogits) = 0;

  // ---- optimizer, on flat ranges [1, n]
  /// Sum of squares, in double; waits for it. Not finite when an element is not.
  virtual double squared_norm(Tensor x) = 0;
  /// Decoupled AdamW (Loshchilov and Hutter, arXiv 1711.05101) on master, first, second (A) with
  /// gradient (A); `compute` (T) receives the new master rounded to T, may alias master.
  virtual void adamw(const AdamW& args, const DecayRuns& runs, Tensor master, Tensor gradient,
                     Tensor first, Tensor second, Tensor compute) = 0;

 protected:
  /// Only asked of devices that do not share the host's memory.
  virtual std::shared_ptr<void> upload_bytes(const void* host, std::size_t bytes) = 0;
  virtual std::shared_ptr<IntervalNotes> note_intervals(std::span<const Interval> rows,
                                                        std::int64_t keys) = 0;
};

/// The CPU backend with that many OpenMP threads (0: OMP_NUM_THREADS or all cores).
std::unique_ptr<Device> make_cpu_device(int threads = 0);

}  // namespace bdlm
