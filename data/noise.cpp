// SPDX-License-Identifier: Apache-2.0
// Noise schedules: the chance p(t) of corruption and the weight p'(t) / p(t) of the NELBO.
#include <cmath>
#include <numbers>

#include "data/objective.h"

namespace bdlm {

NoiseProbability noise_probability(NoiseSchedule schedule, double t) {
  using std::numbers::ln2, std::numbers::pi;
  switch (schedule) {
    case NoiseSchedule::linear:
      return {t, 1 / t};
    case NoiseSchedule::cosine: {
      // 1 - cos x = 2 sin^2(x / 2): the difference would lose all digits at small t.
      const double half = std::sin(pi * t / 4);
      return {2 * half * half, pi / 2 * std::sin(pi * t / 2) / (2 * half * half)};
    }
    case NoiseSchedule::square:
      return {t * t, 2 / t};
    case NoiseSchedule::square_root:
      return {std::sqrt(t), 1 / (2 * t)};
    case NoiseSchedule::logarithmic:
      return {std::log1p(t) / ln2, 1 / ((1 + t) * std::log1p(t))};
  }
  return {};
}

}  // namespace bdlm
