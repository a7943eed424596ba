// SPDX-License-Identifier: Apache-2.0
// Runs a step's micro-batches through this rank's pipeline stages, in the order of the schedule
// (parallel/pipeline_schedule.h). Rows travel from neighbour to neighbour: what the next pass needs
// is asked for before the current one runs, and what a pass has made leaves while the next one runs.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "model/decoder.h"
#include "parallel/mesh.h"
#include "parallel/pipeline_schedule.h"
#include "trainer/run_config.h"
#include "trainer/sharded_parameters.h"
#include "trainer/step_batch.h"

namespace bdlm {

struct LossSums {
  double diffusion = 0, autoregressive = 0;  // weighted cross-entropies
  double balance = 0;  // of the mixtures' layers, over packed rows
};
struct LossFactors {
  double diffusion = 1, autoregressive = 1, balance = 0;  // of the sums in the step's loss
};

class Pipeline {
 public:
  /// All must outlive it.
  Pipeline(const RunConfig& config, Device& device, Mesh& mesh, Decoder& model,
           ShardedParameters& parameters);
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  /// Sums that this rank has to tell: over the world each counts once. Collective over the world.
  LossSums run(StepBatch& batch, const LossFactors& factors, bool train);

  /// Sees, after each pass, how many layers' activations wait for their backward passes. For tests.
  std::function<void(std::int64_t)> trace;

 private:
  /// Rows on their way to this rank or from it.
  struct Rows {
    Buffer memory;
    std::unique_ptr<Transfer> transfer;
  };
  void progress();
  Rows ask(const StepBatch& batch, const PipelineAction& action);
  void send(Flow flow, Buffer rows);
  Buffer run_action(const PipelineAction& action, Pass& pass, Rows rows);
  LossSums sums_of(const StepBatch& batch, const std::vector<Pass>& passes) const;

  const RunConfig& config_;
  Device& device_;
  Mesh& mesh_;
  Decoder& model_;
  ShardedParameters& parameters_;
  Rows asked_;                   // what the next action reads
  std::array<Rows, 2> leaving_;  // by flow: a link has one message under way
};

}  // namespace bdlm
