// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline_schedule.h"

#include <algorithm>

#include "kernels/error.h"

namespace bdlm {
namespace {

using Kind = PipelineAction::Kind;

void check(PipelineSchedule schedule, int stages, int chunks, int micro_batches, int stage) {
  require(stages >= 1 && chunks >= 1 && micro_batches >= 0 && stage >= 0 && stage < stages,
          "a pipeline schedule of {} stages, {} chunks and {} micro-batches has no stage {}",
          stages, chunks, micro_batches, stage);
  require(chunks == 1 || stages > 1,
          "a pipeline of one stage cannot interleave {} chunks: set parallel.virtual_stages to 1, "
          "or parallel.pipeline to 2 or more",
          chunks);
  require(chunks == 1 || schedule == PipelineSchedule::interleaved,
          "schedule 1f1b runs one chunk a rank, not {}: set parallel.schedule to interleaved, or "
          "parallel.virtual_stages to 1",
          chunks);
}

/// The n-th pass of a stage: groups of `stages` micro-batches go through the chunks in turn,
/// forward from the first and backward from the last.
PipelineAction nth(Kind kind, int n, int stages, int chunks) {
  const int group = n / (stages * chunks), within = n % (stages * chunks);
  const int chunk = within / stages;
  return {.kind = kind,
          .micro = group * stages + within % stages,
          .chunk = kind == Kind::forward ? chunk : chunks - 1 - chunk};
}

}  // namespace

std::vector<PipelineAction> pipeline_actions(PipelineSchedule schedule, int stages, int chunks,
                                             int micro_batches, int stage) {
  check(schedule, stages, chunks, micro_batches, stage);
  // One chunk is 1F1B in both. With several, a stage runs ahead of its first backward pass by the
  // other chunks of a group, and by two passes for each stage behind it, where 1F1B needs one: the
  // chunk's gradient comes round the whole ring.
  const int groups = (micro_batches + stages - 1) / stages;
  const int passes = chunks == 1 ? micro_batches : groups * stages * chunks;
  const int behind = stages - 1 - stage;
  const int ahead = std::min(passes, chunks == 1 ? behind : 2 * behind + (chunks - 1) * stages);

  std::vector<PipelineAction> actions;
  const auto add = [&](Kind kind, int n) {
    const PipelineAction action = nth(kind, n, stages, chunks);
    if (action.micro < micro_batches) actions.push_back(action);
  };
  for (int n = 0; n < ahead; ++n) add(Kind::forward, n);
  for (int n = ahead; n < passes; ++n) {
    add(Kind::forward, n);
    add(Kind::backward, n - ahead);
  }
  for (int n = passes - ahead; n < passes; ++n) add(Kind::backward, n);
  return actions;
}

std::vector<PipelineAction> forward_actions(PipelineSchedule schedule, int stages, int chunks,
                                            int micro_batches, int stage) {
  std::vector<PipelineAction> actions =
      pipeline_actions(schedule, stages, chunks, micro_batches, stage);
  std::erase_if(actions, [](const PipelineAction& a) { return a.kind == Kind::backward; });
  return actions;
}

}  // namespace bdlm
