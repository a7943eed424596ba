// SPDX-License-Identifier: Apache-2.0
// Plans as text for people: what `bdlm plan` prints and docs/csbp.md shows. All functions take the
// plans of all ranks of a csbp group, in order.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "parallel/plan.h"

namespace bdlm {

/// A line a rank, then the sum and the most over ranks. Rows held by the first layer; rows and
/// pairs computed and key rows sent and received, over all layers; cost over the mean; bytes
/// received in one forward pass and for its gradients, as in exchange_bytes.
std::string describe_ranks(std::span<const StepPlan> plans, const LayerShapes& model,
                           const PlanOptions& options, std::int64_t wire, std::int64_t sum);

/// Who holds what: a line a rank, a column a block, C for its clean copy and an N for each
/// corrupted one, a dot where the rank has none of it. Bars part documents.
std::string draw_deal(std::span<const StepPlan> plans, const BatchShape& batch);

/// Who reads whom in a layer: key rows that arrive at the rank of the line from that of the column.
std::string draw_readers(std::span<const StepPlan> plans, std::int64_t layer);

/// All of it; pictures only where they fit on a page.
std::string describe_plan(std::span<const StepPlan> plans, const BatchShape& batch,
                          const LayerShapes& model, const PlanOptions& options, std::int64_t wire,
                          std::int64_t sum);

}  // namespace bdlm
