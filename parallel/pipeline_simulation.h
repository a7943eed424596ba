// SPDX-License-Identifier: Apache-2.0
// What a pipeline schedule costs, and whether it can run at all, found from its lists alone.
#pragma once

#include <span>
#include <vector>

#include "parallel/pipeline_schedule.h"

namespace bdlm {

struct ScheduleFacts {
  double span = 0;    // from the first pass of any stage to the end of the last
  double bubble = 0;  // (span - work of a stage) / work of a stage; 0 without work
  /// By stage: most (micro-batch, chunk) activations held at once, each from its forward pass to
  /// the end of its backward pass; of forward passes alone 1, what a pass itself holds.
  std::vector<int> peak_in_flight;
};

using StageActions = std::vector<std::vector<PipelineAction>>;  // by stage

/// pipeline_actions() of every stage.
StageActions all_actions(PipelineSchedule schedule, int stages, int chunks, int micro_batches);

/// Runs the lists on a clock: a stage does one pass at a time in the order of its list, each as
/// soon as what it needs is there; messages take no time. Costs are of one pass through one chunk.
/// Throws Error naming the pass that each stage waits with when none can go on (a deadlock, or a
/// pass that is in no list), and for a pass that a list has twice or out of range.
ScheduleFacts simulate(const StageActions& lists, int chunks, double forward_cost,
                       double backward_cost);
ScheduleFacts simulate(PipelineSchedule schedule, int stages, int chunks, int micro_batches,
                       double forward_cost, double backward_cost);

/// Throws Error naming the link and the messages where a link's receives are in another order than
/// its sends (or one of them is missing). Activations and gradients are links of their own, also
/// between the two stages of a pipeline of two.
void check_links(const StageActions& lists, int chunks);

}  // namespace bdlm
