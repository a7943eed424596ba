// SPDX-License-Identifier: Apache-2.0
// The learning rate as a pure function of the step: nothing to save, the same after any resume.
#pragma once

#include <cstdint>

#include "trainer/run_config.h"

namespace bdlm {

/// Of optimizer step `step` (counts from 1) of a run of `steps`. Step s of w warm-up steps has
/// lr * s / w. A decay ends at lr * min_lr_ratio, which its last step and all later ones have.
double learning_rate(const ScheduleSection& schedule, double lr, std::int64_t step,
                     std::int64_t steps);

}  // namespace bdlm
