// SPDX-License-Identifier: Apache-2.0
// One rank's model with what a step needs: exchange, decoder, sharded optimizer. Training,
// evaluation and parity drive the same engine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kernels/device.h"
#include "model/decoder.h"
#include "parallel/exchange.h"
#include "parallel/mesh.h"
#include "trainer/run_config.h"
#include "trainer/sharded_adamw.h"
#include "trainer/step_batch.h"

namespace bdlm {

enum class Mode : std::uint8_t { train, evaluate };

class Engine {
 public:
  Engine(const RunConfig& config, Device& device, Mesh& mesh, Mode mode);

  Decoder& model() { return *model_; }
  ShardedAdamW& optimizer() { return *optimizer_; }  // Mode::train only
  Device& device() { return device_; }
  Mesh& mesh() { return mesh_; }
  Seat seat() const;  // in the csbp group

  /// Weights as the run file says: random, or from a Hugging Face folder. Collective.
  void initialize();
  /// From a checkpoint; in Mode::train with the optimizer's state. Collective; an Error is one of
  /// all ranks, and nothing has changed then.
  void load(const CheckpointInfo& checkpoint);

  struct LossSums {
    double diffusion = 0, autoregressive = 0;  // weighted cross-entropies
  };
  struct Factors {
    double diffusion = 1, autoregressive = 1;  // of the sums in the step's loss
  };
  /// Loss sums of the replica's micro-batches, not reduced over ranks; with `gradients` those of
  /// factors x sums are added to the model's. Collective over the csbp group.
  LossSums run(StepBatch& batch, const Factors& factors, bool gradients);

 private:
  void fill_weights(const std::function<void(std::int64_t, std::int64_t, double*)>& source);

  const RunConfig& config_;
  Device& device_;
  Mesh& mesh_;
  std::unique_ptr<Exchange> exchange_;
  std::unique_ptr<Decoder> model_;
  std::unique_ptr<ShardedAdamW> optimizer_;
};

/// What the run file says to the model.
DecoderOptions decoder_options(const RunConfig& config);

/// All weights of a checkpoint into the decoder, without the optimizer's state. Not collective.
void load_weights(const CheckpointInfo& checkpoint, Decoder& decoder, Device& device);

/// The step's one division: loss = factors.diffusion * sum + factors.autoregressive * sum, with the
/// global counts (1-objective 1.3). A term without a target has factor 0.
Engine::Factors loss_factors(const Objective& objective, const LossCounts& global);

/// Counts of all replicas. Collective over the data group.
LossCounts global_counts(const LossCounts& mine, Communicator& data);

}  // namespace bdlm
