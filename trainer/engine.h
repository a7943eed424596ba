// SPDX-License-Identifier: Apache-2.0
// One rank's part of the model with what a step needs: exchange, decoder, sharded parameters and
// optimizer, pipeline. Training, evaluation and parity drive the same engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "model/decoder.h"
#include "parallel/exchange.h"
#include "parallel/mesh.h"
#include "trainer/pipeline.h"
#include "trainer/run_config.h"
#include "trainer/sharded_adamw.h"
#include "trainer/sharded_parameters.h"
#include "trainer/step_batch.h"

namespace bdlm {

enum class Mode : std::uint8_t { train, evaluate };

class Engine {
 public:
  /// Collective over the world.
  Engine(const RunConfig& config, Device& device, Mesh& mesh, Mode mode);

  Decoder& model() { return model_; }
  Pipeline& pipeline() { return pipeline_; }
  ShardedParameters& parameters() { return parameters_; }
  ShardedAdamW& optimizer() { return *optimizer_; }  // Mode::train only
  Device& device() { return device_; }
  Mesh& mesh() { return mesh_; }
  Seat seat() const;  // in the csbp group

  /// Weights as the run file says: random, or from a Hugging Face folder. Collective.
  void initialize();
  /// From a checkpoint; in Mode::train with the optimizer's state. Collective; an Error is one of
  /// all ranks, and nothing has changed then.
  void load(const CheckpointInfo& checkpoint);

  /// Loss sums of the replica's micro-batches that this rank has to tell, not reduced over ranks;
  /// with `gradients` those of factors x sums are added to the parameters' and, after the last
  /// micro-batch, summed over their holders. Collective over the world.
  LossSums run(StepBatch& batch, const LossFactors& factors, bool gradients);

 private:
  const RunConfig& config_;
  Device& device_;
  Mesh& mesh_;
  ModelShard shard_;
  std::unique_ptr<Exchange> exchange_;
  ShardedParameters parameters_;
  Decoder model_;
  Pipeline pipeline_;
  std::unique_ptr<ShardedAdamW> optimizer_;
};

/// What the run file says to the model.
DecoderOptions decoder_options(const RunConfig& config);
ZeroOptions zero_options(const RunConfig& config, Mode mode);

/// All weights of a checkpoint into the tensor [1, layout.size], without the optimizer's state. Not
/// collective.
void load_weights(const CheckpointInfo& checkpoint, const ModelConfig& model,
                  const ParameterLayout& layout, Tensor weights, Device& device);

/// The step's one division: loss = sum of factor x sum over the terms, with the global counts
/// (1-objective 1.3). A term without a target has factor 0.
LossFactors loss_factors(const Objective& objective, const LossCounts& global);

/// Counts of all replicas. Collective over the data group.
LossCounts global_counts(const LossCounts& mine, Communicator& data);

}  // namespace bdlm
