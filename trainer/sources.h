// SPDX-License-Identifier: Apache-2.0
// The run file's data as sources of packed rows, and the batches of its steps.
#pragma once

#include <cstdint>

#include "data/source.h"
#include "trainer/step_batch.h"

namespace bdlm {

DataSource training_source(const RunConfig& config);
/// data.eval; Error when the run file names none.
DataSource evaluation_source(const RunConfig& config);
/// eval.rows, or all rows of the source's first epoch.
std::int64_t evaluation_rows(const RunConfig& config, const DataSource& source);

/// The batch of step `step` (counts from 1) for one replica: packed rows first_row + its share of
/// [0, batch.rows). A pure function of its arguments.
StepBatch batch_of_step(const DataSource& source, const RunConfig& config, std::int64_t step,
                        std::int64_t first_row, int replica, Seat seat);

}  // namespace bdlm
