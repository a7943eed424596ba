// SPDX-License-Identifier: Apache-2.0
// Learning rates at the edges of warm-up and decay.
#include <catch2/catch.hpp>

#include "trainer/schedule.h"

using namespace bdlm;

namespace {

ScheduleSection schedule(ScheduleKind kind, std::int64_t warmup, std::int64_t decay, double ratio) {
  return {.kind = kind, .warmup_steps = warmup, .decay_steps = decay, .min_lr_ratio = ratio};
}

}  // namespace

TEST_CASE("warm-up rises by the same amount a step and ends at lr") {
  for (const ScheduleKind kind :
       {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::wsd}) {
    const ScheduleSection s = schedule(kind, 4, 3, 0.1);
    for (std::int64_t step = 1; step <= 4; ++step) {
      CHECK(learning_rate(s, 2, step, 20) == Approx(2 * static_cast<double>(step) / 4));
    }
    CHECK(learning_rate(s, 2, 5, 20) <= 2);
  }
}

TEST_CASE("constant stays") {
  const ScheduleSection s = schedule(ScheduleKind::constant, 0, 0, 0.5);
  for (std::int64_t step : {1, 7, 1000}) CHECK(learning_rate(s, 3e-4, step, 10) == 3e-4);
}

TEST_CASE("linear and cosine go from lr to the least at the last step") {
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine}) {
    const ScheduleSection to_end = schedule(kind, 2, 0, 0.1);
    CHECK(learning_rate(to_end, 1, 2, 12) == 1);
    CHECK(learning_rate(to_end, 1, 7, 12) == Approx(0.55));  // half way: half the span
    CHECK(learning_rate(to_end, 1, 12, 12) == Approx(0.1));
    CHECK(learning_rate(to_end, 1, 13, 12) == Approx(0.1));
    const ScheduleSection early = schedule(kind, 2, 4, 0);
    CHECK(learning_rate(early, 1, 4, 12) == Approx(0.5));
    CHECK(learning_rate(early, 1, 6, 12) == Approx(0).margin(1e-15));
    CHECK(learning_rate(early, 1, 12, 12) == Approx(0).margin(1e-15));
  }
  CHECK(learning_rate(schedule(ScheduleKind::linear, 0, 0, 0), 1, 1, 4) == Approx(0.75));
  CHECK(learning_rate(schedule(ScheduleKind::cosine, 0, 0, 0), 1, 1, 4) == Approx(0.8535533906));
}

TEST_CASE("wsd is stable, then falls in the last steps") {
  const ScheduleSection s = schedule(ScheduleKind::wsd, 3, 4, 0.2);
  for (std::int64_t step = 3; step <= 16; ++step) CHECK(learning_rate(s, 1, step, 20) == 1);
  CHECK(learning_rate(s, 1, 17, 20) == Approx(0.8));
  CHECK(learning_rate(s, 1, 20, 20) == Approx(0.2));
  CHECK(learning_rate(s, 1, 25, 20) == Approx(0.2));
}

TEST_CASE("a run that is all warm-up has nothing to decay") {
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine}) {
    CHECK(learning_rate(schedule(kind, 5, 0, 0), 1, 5, 5) == 1);
    CHECK(learning_rate(schedule(kind, 5, 0, 0), 1, 6, 5) == Approx(0).margin(1e-15));
  }
}
