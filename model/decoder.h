// SPDX-License-Identifier: Apache-2.0
// The decoder's part on one rank: embedding, layers, head and loss over the rows that a plan gives
// it. A rank may hold some of the layers only, in one or several chunks (pipeline stages).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "model/decoder_layer.h"
#include "model/embedding.h"
#include "model/head_loss.h"
#include "model/parameter_store.h"
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
  std::vector<Recompute> recompute;  // a layer of the model each
  bool keep_remote_kv = true;
  std::int64_t loss_chunk = 1024;
  std::int64_t excluded = -1;  // the id that is no possible answer
};

/// Whom a rank's part talks to. All must outlive the decoder.
struct DecoderGroups {
  Exchange& exchange;    // over the csbp group, of this rank's key/value heads
  Communicator& tensor;  // shares heads, MLP width, vocabulary and rows
  Communicator& row;     // tensor x csbp: all that share a packed row
  Communicator& expert;  // shares the experts
};

/// A micro-batch on its way through the rank's chunks: what a backward pass will need.
class Pass {
 public:
  /// Cross-entropy of every row of plan.head, once the last chunk has been run; else empty.
  std::vector<double> losses(Device& device) const;
  /// Drops all but the losses: no more of its chunks will be run.
  void finish();
  /// Layers whose activations wait for their backward pass.
  std::int64_t layers_held() const;

 private:
  friend class Decoder;
  const StepPlan* plan = nullptr;
  const DecoderInput* input = nullptr;
  std::vector<LayerLists> lists;
  EmbeddingPlan embedding;              // first stage only
  std::vector<LayerActivations> saved;  // of the rank's layers; empty: no backward pass follows
  HeadResult head;                      // last stage only
};

class Decoder {
 public:
  /// `parameters` lay out as layout_of(config, shard) says and must outlive the decoder.
  Decoder(Device& device, const ModelConfig& config, ModelShard shard, DecoderOptions options,
          DecoderGroups groups, ParameterStore& parameters);

  const ModelConfig& config() const { return config_; }  // of the whole model
  const ModelShard& shard() const { return shard_; }
  const ParameterLayout& layout() const { return layout_; }
  const AttentionWork& work() const { return work_; }

  /// Both must outlive the pass. `train`: a backward pass will follow.
  Pass begin(const StepPlan& plan, const DecoderInput& input, bool train);
  /// Runs one chunk. x: what the stage before has returned, this rank's share of the rows
  /// [rows, D] in options.residual; nothing for the first stage. Returns nothing for the last one,
  /// which ends with the losses. Collective over the groups.
  Buffer forward(Pass& pass, std::size_t chunk, Buffer x);
  /// The gradient of what forward returned -> that of what it was given; gradients of parameters are
  /// added. Chunks in descending order.
  Buffer backward(Pass& pass, std::size_t chunk, Buffer dy);
  /// Whether a chunk begins with the embedding, and whether it ends with the losses.
  bool embeds(std::size_t chunk) const { return shard_.first && chunk == 0; }
  bool ends(std::size_t chunk) const { return shard_.last && chunk + 1 == shard_.chunks.size(); }
  DType stream() const { return options_.residual; }
  /// Rows of what forward(chunk) is given and what it returns, on this rank.
  std::int64_t rows_in(const StepPlan& plan, std::size_t chunk) const;
  std::int64_t rows_out(const StepPlan& plan, std::size_t chunk) const;

  /// All of it at once, on a rank that holds all layers.
  std::vector<double> loss(const StepPlan& plan, const DecoderInput& input);
  std::vector<double> loss_and_gradients(const StepPlan& plan, const DecoderInput& input);
  /// Logits [rows of plan.head, vocab] in the accumulate dtype, for generation. ids as in
  /// DecoderInput.
  Buffer logits(const StepPlan& plan, std::span<const std::int32_t> ids);

  /// Starts a step: `factor` of the balance term's sum over packed rows and layers in its loss.
  void begin_balance(double factor) {
    balance_.factor = factor;
    balance_.sum = 0;
  }
  double balance_sum() const { return balance_.sum; }

  /// Called after each layer of a pass: lets messages move that travel beside it. May be empty.
  std::function<void()> after_layer;
  /// Sees the residual stream after each layer: (layer, its plan, this rank's share [., D] of the
  /// output rows, the first of them). For parity.
  std::function<void(std::int64_t, const LayerPlan&, Tensor, std::int64_t)> trace;

 private:
  LayerContext context(const StepPlan& plan);
  std::size_t head_unit() const { return layout_.units.size() - 1; }
  std::size_t unit_of(std::size_t chunk, std::int64_t layer) const;
  LayerTensors layer_tensors(std::int64_t layer, const ParameterMemory& memory) const {
    return view_layer(config_, layout_, layer, memory);
  }
  HeadView head_weights();
  void run_head(const LayerContext& c, Pass& pass, Tensor x);

  Device& device_;
  ModelConfig config_, local_;
  ModelShard shard_;
  DecoderOptions options_;
  DecoderGroups groups_;
  ParameterStore& parameters_;
  ParameterLayout layout_;
  ScatteredRows rows_;
  ExpertExchange experts_;
  BalanceTerm balance_;
  RotaryCache rotary_;
  AttentionWork work_;
};

}  // namespace bdlm
