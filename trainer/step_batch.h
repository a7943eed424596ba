// SPDX-License-Identifier: Apache-2.0
// The batch of one optimizer step as this rank sees it: micro-batches with their plans. Made on the
// host ahead of time; nothing in it depends on the weights.
#pragma once

#include <cstdint>
#include <vector>

#include "data/row.h"
#include "model/config.h"
#include "model/decoder.h"
#include "parallel/plan.h"
#include "trainer/run_config.h"

namespace bdlm {

struct MicroStep {
  StepPlan plan;
  DecoderInput input;             // weights: of the targets, not yet divided
  std::vector<TargetKind> kinds;  // of every row of plan.head
};

struct StepBatch {
  std::vector<MicroStep> micro;
  LossCounts counts;               // of this replica's rows
  std::vector<std::int64_t> rows;  // packed rows of this replica, by index
  std::int64_t tokens = 0;         // clean tokens of this replica
  double flops = 0;  // this rank's share of the useful work, forward and backward
  std::uint64_t fingerprint = 0;   // sum over this replica's rows; see data/fingerprint.h
};

/// What the planner must know of the model.
LayerShapes layer_shapes(const ModelConfig& config);

/// A replica's place in the csbp group, for which the plans are made.
struct Seat {
  int ranks = 1, rank = 0;
};

/// Views that go through the model beside one clean copy. A mixture's balance term is taken over all
/// copies of a row, so they stay together for it even where elide.second_clean is off.
std::int64_t views_at_once(const RunConfig& config);

/// `rows` of this replica, cut into micro-batches of batch.micro_rows. most_rows: of the replica that
/// has most; the others' batches end with empty micro-batches, for the ranks of a stage go through
/// their layers together.
StepBatch make_step_batch(std::vector<CorruptedRow> rows, const RunConfig& config, Seat seat,
                          std::int64_t most_rows);

/// Packed rows [first, last) of the step's batch.rows that replica `data` of `replicas` takes.
struct RowRange {
  std::int64_t first = 0, last = 0;
};
RowRange rows_of_replica(std::int64_t rows, int replicas, int data);
/// Of the replica that has most.
std::int64_t most_rows_of(std::int64_t rows, int replicas);

}  // namespace bdlm
