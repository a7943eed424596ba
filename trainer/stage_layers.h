// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "parallel/layer_cut.h"
#include "trainer/run_config.h"

namespace bdlm {

/// The layers of each virtual stage of the run (chunk * pipeline + stage), cut by cost: a layer's
/// FLOPs for a full packed row of one document, the head's for the positions that are scored. The
/// embedding copies rows, which costs next to nothing. The same on every rank.
std::vector<LayerRange> stage_layers(const RunConfig& config);

}  // namespace bdlm
