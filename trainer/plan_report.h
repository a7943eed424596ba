// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "trainer/run_config.h"

namespace bdlm {

/// What a run will be, as text: topology, parameters, the plans of step `step`'s first micro-batch
/// for every rank of the first csbp group, and the step's bytes by purpose for every rank.
/// config.parallel.mesh is complete. Without a token file in data.train rows of one whole document
/// of data.row_tokens are assumed.
std::string plan_report(const RunConfig& config, std::int64_t step);

/// The mesh alone: stages with their layers and ranks, and who talks to whom (mesh_picture.h).
std::string mesh_report(const RunConfig& config);

}  // namespace bdlm
