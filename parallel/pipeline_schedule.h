// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules as data: which forward and backward passes a stage runs, in which order.
// Nothing runs here; parallel/pipeline_simulation.h says what a schedule costs and whether it can
// deadlock.
//
// Both are of Narayanan et al., arXiv 2104.04473: 1F1B (PipeDream-Flush) and the interleaved one,
// in which a rank holds `chunks` pieces of the depth. Virtual stage v = chunk * stages + stage.
#pragma once

#include <cstdint>
#include <vector>

namespace bdlm {

enum class PipelineSchedule : std::uint8_t { one_forward_one_backward, interleaved };

struct PipelineAction {
  enum class Kind : std::uint8_t { forward, backward };
  Kind kind = Kind::forward;
  int micro = 0;  // micro-batch, from 0
  int chunk = 0;  // of this rank: 0 .. chunks - 1
  bool operator==(const PipelineAction&) const = default;
};

/// What stage `stage` of `stages` runs in a step, in its order: every micro-batch forward and
/// backward through each of its chunks, once. Any number of micro-batches, also fewer than stages
/// and none; where the interleaved one's groups of `stages` micro-batches do not fill, the missing
/// ones are left out of the full schedule, which keeps the order and so cannot deadlock.
///
/// A stage sends activations to stage + 1 and gradients to stage - 1 (mod stages, since chunks go
/// round). On each of these links the sends of one side and the receives of the other, each in the
/// order of its own list, are in the same order: a link may be one in-order stream.
///
/// A backward pass follows its forward pass; on one stage at once (F, B, F, B, ...). Activations
/// held by a stage of 1F1B: at most min(micro_batches, stages - stage).
///
/// Throws Error for chunks > 1 with 1F1B or with one stage, and for sizes below 1 (micro_batches:
/// 0).
std::vector<PipelineAction> pipeline_actions(PipelineSchedule schedule, int stages, int chunks,
                                             int micro_batches, int stage);

/// The forward passes alone, in the same order: evaluation.
std::vector<PipelineAction> forward_actions(PipelineSchedule schedule, int stages, int chunks,
                                            int micro_batches, int stage);

}  // namespace bdlm
