// SPDX-License-Identifier: Apache-2.0
// What every layer is given: where to compute, whom to exchange with, and the plan's lists in
// device memory. Layers hold no state of their own.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "model/config.h"
#include "parallel/exchange.h"
#include "parallel/plan.h"

namespace bdlm {

/// The lists of a LayerPlan in device memory, in the same order.
struct LayerLists {
  DeviceList<std::int32_t> positions, out, out_positions;
  std::vector<IntervalList> own;
  std::vector<std::vector<IntervalList>> peers;
};
/// Of every distinct layer of the plan.
std::vector<LayerLists> upload(Device& device, const StepPlan& plan);

/// Attention work that was really done, to hold against the plan.
struct AttentionWork {
  std::int64_t forward_pairs = 0, backward_pairs = 0;  // visible (query, key) pairs
};

struct LayerContext {
  Device& device;
  const ModelConfig& config;
  Exchange& exchange;
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
};

}  // namespace bdlm
