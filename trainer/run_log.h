// SPDX-License-Identifier: Apache-2.0
// Everything that a run tells about itself: console, metrics.jsonl, TensorBoard. Measures are taken
// on all ranks and reduced; rank 0 writes.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "parallel/mesh.h"
#include "trainer/checkpoint.h"
#include "trainer/console.h"
#include "trainer/evaluate.h"
#include "trainer/metrics.h"
#include "trainer/step.h"
#include "trainer/tensorboard.h"

namespace bdlm {

class RunLog {
 public:
  /// Makes the run folder and puts the resolved run file there. Collective over the world.
  RunLog(const RunConfig& config, Mesh& mesh, Device& device, std::shared_ptr<Traffic> traffic);

  void begin_step(const AttentionWork& work);
  /// Returns the clean tokens of the whole step. Collective over the world.
  std::int64_t end_step(const Progress& progress, std::int64_t first_row, const StepBatch& batch,
                        const StepResult& result, double lr, const AttentionWork& work);

  void begin_evaluation() { started_ = Clock::now(); }
  void end_evaluation(std::int64_t step, const Evaluation& evaluation);

 private:
  using Clock = std::chrono::steady_clock;
  void measure(StepMetrics& m, const StepBatch& batch, const AttentionWork& work);

  const RunConfig& config_;
  Mesh& mesh_;
  Device& device_;
  std::shared_ptr<Traffic> traffic_;
  std::optional<Console> console_;
  std::optional<MetricsFile> metrics_;
  std::optional<EventFile> events_;
  Clock::time_point started_;
  Traffic before_;
  AttentionWork work_before_;
  double seconds_a_step_ = 0;  // smoothed, for the time left
};

}  // namespace bdlm
