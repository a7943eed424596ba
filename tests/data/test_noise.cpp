// SPDX-License-Identifier: Apache-2.0
// Schedules against their formulas, and the weight against a numerical derivative.
#include <catch2/catch.hpp>
#include <cmath>

#include "data/objective.h"

using namespace bdlm;

namespace {
constexpr NoiseSchedule all[] = {NoiseSchedule::linear, NoiseSchedule::cosine,
                                 NoiseSchedule::square, NoiseSchedule::square_root,
                                 NoiseSchedule::logarithmic};

double slow_p(NoiseSchedule schedule, double t) {
  switch (schedule) {
    case NoiseSchedule::linear:
      return t;
    case NoiseSchedule::cosine:
      return 1 - std::cos(M_PI * t / 2);
    case NoiseSchedule::square:
      return std::pow(t, 2);
    case NoiseSchedule::square_root:
      return std::pow(t, 0.5);
    case NoiseSchedule::logarithmic:
      return std::log(1 + t) / std::log(2);
  }
  return -1;
}
}  // namespace

TEST_CASE("noise: every schedule goes from 0 to 1 along its formula", "[noise]") {
  for (NoiseSchedule schedule : all) {
    CAPTURE(static_cast<int>(schedule));
    CHECK(noise_probability(schedule, 0).p == 0);
    CHECK(noise_probability(schedule, 1).p == Approx(1).epsilon(1e-14));
    for (double t : {0.001, 0.13, 0.5, 0.77, 0.999})
      CHECK(noise_probability(schedule, t).p == Approx(slow_p(schedule, t)).epsilon(1e-9));
  }
}

TEST_CASE("noise: the weight is p'(t) / p(t)", "[noise]") {
  for (NoiseSchedule schedule : all) {
    for (double t : {0.01, 0.2, 0.5, 0.9}) {
      CAPTURE(static_cast<int>(schedule), t);
      const double h = 1e-6;
      const double slope = (slow_p(schedule, t + h) - slow_p(schedule, t - h)) / (2 * h);
      CHECK(noise_probability(schedule, t).weight ==
            Approx(slope / slow_p(schedule, t)).epsilon(1e-6));
    }
  }
}

TEST_CASE("noise: small levels keep their digits", "[noise]") {
  for (double t : {1e-9, 1e-5}) {
    const NoiseProbability cosine = noise_probability(NoiseSchedule::cosine, t);
    CHECK(cosine.p == Approx(M_PI * M_PI * t * t / 8).epsilon(1e-8));
    CHECK(cosine.weight == Approx(2 / t).epsilon(1e-8));
    CHECK(noise_probability(NoiseSchedule::logarithmic, t).weight == Approx(1 / t).epsilon(1e-4));
  }
}
