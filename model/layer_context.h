// SPDX-License-Identifier: Apache-2.0
// What every layer is given: where to compute, whom to exchange with, and the plan's lists in
// device memory. Layers hold no state of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "model/config.h"
#include "parallel/exchange.h"
#include "parallel/expert_exchange.h"
#include "parallel/plan.h"
#include "parallel/scattered_rows.h"

namespace bdlm {

/// The lists of a LayerPlan in device memory, in the same order, and which of its output rows are
/// this rank's where the tensor group shares them out.
struct LayerLists {
  DeviceList<std::int32_t> positions, out, out_positions;
  std::vector<IntervalList> own;
  std::vector<std::vector<IntervalList>> peers;
  RowMove move;  // input rows here -> output rows here
  DeviceList<std::int32_t> held;
  DeviceList<std::int32_t> packed;  // of the output rows here: LayerPlan::packed
};
/// Of every distinct layer of the plan, which must outlive them.
std::vector<LayerLists> upload(Device& device, const StepPlan& plan, const ScatteredRows& rows);

/// Attention work that was really done, to hold against the plan.
struct AttentionWork {
  std::int64_t forward_pairs = 0, backward_pairs = 0;  // visible (query, key) pairs
  ExpertRows expert_rows, expert_rows_again;  // sent to and got from other ranks; recomputed
};

/// The balance term of a mixture: model/balance.h.
struct BalanceTerm {
  Communicator& group;  // ranks of a packed row
  double factor = 0;    // of the sum over packed rows and layers in the step's loss; 0: no such term
  double sum = 0;       // so far, over the packed rows of this group; on its rank 0
};

struct LayerContext {
  Device& device;
  const ModelConfig& config;  // sizes of this rank
  Exchange& exchange;
  ScatteredRows& scattered;  // what the tensor group shares out
  ExpertExchange& experts;  // rows to their experts and back
  BalanceTerm& balance;
  RotaryTable rotary;
  DType compute;              // of weights and activations
  DType stream;               // of the residual stream and its gradient: compute or sums()
  bool keep_remote_kv;        // keep what others have sent for the backward pass
  AttentionWork& work;

  DType sums() const { return accumulate_type(compute); }
  Buffer activation(std::int64_t rows, std::int64_t cols) const {
    return device.allocate(rows, cols, compute, Memory::activations);
  }
  Buffer residual(std::int64_t rows, std::int64_t cols) const {
    return device.allocate(rows, cols, stream, Memory::activations);
  }
  Buffer sum(std::int64_t rows, std::int64_t cols) const {
    return device.allocate(rows, cols, sums(), Memory::activations);
  }
  /// x of the residual stream as an operand of a product: x itself where it has the compute dtype,
  /// else a rounded copy, which `copy` keeps.
  Tensor operand(Tensor x, Buffer& copy) const;
  /// The same for all n rows of which x is this rank's share. Collective over the tensor group.
  Tensor all_rows(Tensor x, std::int64_t n, Buffer& copy) const;

  /// RMS norm of the share x of n rows: all n rows of the result. rstd [x.rows, 1]. Collective
  /// likewise, as is its gradient: dx += of dnormed [n, D], this rank's partial sum of it.
  Buffer norm_rows(Tensor x, std::int64_t n, Tensor weight, Tensor rstd) const;
  void norm_rows_backward(Tensor x, Tensor weight, Tensor rstd, Tensor dnormed, Tensor dx,
                          Tensor dweight) const;
};

}  // namespace bdlm
