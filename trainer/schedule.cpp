// SPDX-License-Identifier: Apache-2.0
// Warm-up, then constant, linear, cosine, or stable and a linear decay at the end (wsd).
#include "trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace bdlm {

double learning_rate(const ScheduleSection& schedule, double lr, std::int64_t step,
                     std::int64_t steps) {
  const std::int64_t warmup = schedule.warmup_steps;
  if (step < warmup) return lr * static_cast<double>(step) / static_cast<double>(warmup);
  if (schedule.kind == ScheduleKind::constant) return lr;

  const bool at_end = schedule.kind == ScheduleKind::wsd;
  const std::int64_t length =
      at_end || schedule.decay_steps > 0 ? schedule.decay_steps : steps - warmup;
  const std::int64_t start = at_end ? std::max(warmup, steps - length) : warmup;
  if (step <= start) return lr;
  const double done =
      length > 0 ? std::min(1.0, static_cast<double>(step - start) / static_cast<double>(length))
                 : 1.0;
  const double left = schedule.kind == ScheduleKind::cosine
                          ? 0.5 * (1 + std::cos(std::numbers::pi * done))
                          : 1 - done;
  return lr * (schedule.min_lr_ratio + (1 - schedule.min_lr_ratio) * left);
}

}  // namespace bdlm
