// SPDX-License-Identifier: Apache-2.0
// The decoder of one rank: embedding, layers, head and loss over the rows that a plan gives it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "model/decoder_layer.h"
#include "model/head_loss.h"
#include "model/parameters.h"
#include "model/rotary.h"
#include "parallel/exchange.h"
#include "parallel/plan.h"

namespace bdlm {

/// The tokens and targets that belong to a StepPlan.
struct DecoderInput {
  std::vector<std::int32_t> ids;      // of every row of the first layer's `in`
  std::vector<std::int32_t> targets;  // of every row of StepPlan::head
  std::vector<double> weights;        // of every row of StepPlan::head: factor in the step's loss
};

struct DecoderOptions {
  DType compute = DType::f32;
  DType residual = DType::f32;  // of the residual stream: compute, or its accumulate dtype
  std::vector<Recompute> recompute;  // a layer each
  bool keep_remote_kv = true;
  std::int64_t loss_chunk = 1024;
  std::int64_t excluded = -1;  // the id that is no possible answer
};

class Decoder {
 public:
  /// Allocates weights (compute dtype) and, for training, gradients (its accumulate dtype).
  Decoder(Device& device, ModelConfig config, DecoderOptions options, Exchange& exchange,
          bool train);

  const ModelConfig& config() const { return config_; }
  const ParameterLayout& layout() const { return layout_; }
  Tensor weights() const { return weights_; }      // [1, layout().size]
  Tensor gradients() const { return gradients_; }  // likewise; zero them before a step
  const AttentionWork& work() const { return work_; }

  /// Cross-entropy of every row of plan.head. Collective over the csbp group.
  std::vector<double> loss(const StepPlan& plan, const DecoderInput& input);
  /// The same, and adds the gradients of the weighted sum.
  std::vector<double> loss_and_gradients(const StepPlan& plan, const DecoderInput& input);

  /// Logits [rows of plan.head, vocab] in the accumulate dtype, for generation. ids as in
  /// DecoderInput. Collective over the csbp group.
  Buffer logits(const StepPlan& plan, std::span<const std::int32_t> ids);

  /// Called before the parameters at offsets below `end` are read, in ascending order within a
  /// forward pass: they may still be on their way. May be empty.
  std::function<void(std::int64_t end)> weights_needed;
  /// Called in a backward pass when the gradients at offsets from `begin` on have got all that this
  /// pass adds to them, in descending order. May be empty.
  std::function<void(std::int64_t begin)> gradients_added;
  /// Sees the residual stream after each layer: (layer, its plan, [out, D]). For parity.
  std::function<void(std::int64_t, const LayerPlan&, Tensor)> trace;

 private:
  std::vector<double> run(const StepPlan& plan, const DecoderInput& input, bool train);
  LayerContext context(const StepPlan& plan);
  void need_weights(std::int64_t end) const {
    if (weights_needed) weights_needed(end);
  }
  void added_gradients(std::int64_t begin) const {
    if (gradients_added) gradients_added(begin);
  }
  /// Where the parameters of a layer begin; of the number of layers: the final norm.
  std::int64_t layer_begin(std::size_t layer) const;
  /// ids -> the last layer's output. `saved` empty: no backward pass will follow.
  Buffer forward(const LayerContext& c, const StepPlan& plan, const std::vector<LayerLists>& lists,
                 const DeviceList<std::int32_t>& ids, std::span<LayerActivations> saved);
  void backward(const LayerContext& c, const StepPlan& plan, const std::vector<LayerLists>& lists,
                std::span<const std::int32_t> ids, std::vector<LayerActivations> saved,
                Buffer dx);

  struct ModelTensors {
    Tensor embedding;
    std::vector<LayerTensors> layers;
    Tensor norm, head;
  };
  ModelTensors view(Tensor flat) const;

  Device& device_;
  ModelConfig config_;
  DecoderOptions options_;
  Exchange& exchange_;
  ParameterLayout layout_;
  Buffer weights_, gradients_;
  ModelTensors w_, g_;
  RotaryCache rotary_;
  AttentionWork work_;
};

}  // namespace bdlm
