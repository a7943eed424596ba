// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "trainer/run_config.h"

namespace bdlm {

/// The training run of a run file from start or resume to the last step, with logging, evaluation
/// and checkpoints. Collective over the launch. Returns 0, also after a signal that asked to stop.
int train(const RunConfig& config);

}  // namespace bdlm
