// SPDX-License-Identifier: Apache-2.0
// Where the decoder's parameters are while it works on a unit of them. ZeRO decides whether they are
// always there, on their way, or gathered for the moment; the decoder only says what it needs.
#pragma once

#include <cstddef>
#include <optional>

#include "model/parameters.h"

namespace bdlm {

/// Units as in ParameterLayout. All calls are collective over the holders of the parameters, in the
/// order of the pass, which is the same on all of them.
class ParameterStore {
 public:
  virtual ~ParameterStore() = default;
  /// Weights of a unit in the compute dtype: work enqueued from now until release reads them. `next`
  /// is asked for after it, so that it can travel already.
  virtual ParameterMemory weights(std::size_t unit, std::optional<std::size_t> next = {}) = 0;
  virtual void release(std::size_t unit) = 0;
  /// Gradients of a unit in the accumulate dtype, to be added to.
  virtual ParameterMemory gradients(std::size_t unit) = 0;
  /// The backward pass of a micro-batch has added all that it adds to the unit. Units of a pass come
  /// in descending order.
  virtual void gradients_added(std::size_t unit) = 0;
};

/// All weights in memory, and gradients for a decoder that is trained.
class FlatParameters final : public ParameterStore {
 public:
  FlatParameters(Device& device, const ParameterLayout& layout, DType compute, bool train)
      : weights_(device.allocate(1, layout.size, compute, Memory::parameters)) {
    if (!train) return;
    gradients_ = device.allocate(1, layout.size, accumulate_type(compute), Memory::gradients);
    device.zero(gradients_);
  }
  Tensor weights() const { return weights_; }      // [1, layout.size]
  Tensor gradients() const { return gradients_; }  // likewise

  ParameterMemory weights(std::size_t, std::optional<std::size_t>) override {
    return in_flat(weights_);
  }
  void release(std::size_t) override {}
  ParameterMemory gradients(std::size_t) override { return in_flat(gradients_); }
  void gradients_added(std::size_t) override {}

 private:
  Buffer weights_, gradients_;
};

}  // namespace bdlm
