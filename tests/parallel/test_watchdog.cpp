// SPDX-License-Identifier: Apache-2.0
// What the watchdog notices and says, with an activity written by hand.
#include <catch2/catch.hpp>
#include <future>

#include "parallel/watchdog.h"

using namespace bdlm;
using namespace std::chrono_literals;

namespace {

constexpr auto longest = 10s;  // for a report that must come

}  // namespace

TEST_CASE("a stall is described with its ranks as ranges and what was before it") {
  Activity activity;
  const std::vector<int> all{0, 1, 2, 3, 4, 9};
  activity.begin("reduce_scatter", Purpose::gradient_reduce, "replicas", 41, 800, all);
  activity.end();
  const std::vector<int> some{7, 2, 0, 1, 1, 3};
  activity.begin("all_gather", Purpose::parameter_gather, "replicas", 42, 1600, some);
  const Activity::Snapshot stall = activity.snapshot();
  CHECK(stall.waiting);
  const std::string text =
      describe_stall(stall, 2, "node17", stall.recent.back().since + std::chrono::seconds(600));
  CHECK_THAT(text, Catch::StartsWith("rank 2 on node17 has waited 600 s"));
  CHECK_THAT(text, Catch::Contains("in all_gather of group replicas (parameter_gather, operation "
                                   "42, 1600 bytes) for ranks 0-1, 3, 7:"));
  CHECK_THAT(text, Catch::EndsWith("before it: replicas 41 reduce_scatter"));
}

TEST_CASE("an activity remembers the last operations only") {
  Activity activity;
  for (int i = 0; i < 20; ++i) {
    activity.begin("barrier", Purpose::control, "world", i, 0, {});
    activity.end();
  }
  const Activity::Snapshot snapshot = activity.snapshot();
  CHECK(!snapshot.waiting);
  REQUIRE(snapshot.recent.size() == 8);
  CHECK(snapshot.recent.front().sequence == 12);
  CHECK(snapshot.recent.back().sequence == 19);
}

TEST_CASE("the watchdog reports a long wait once") {
  auto activity = std::make_shared<Activity>();
  std::promise<std::string> report;  // a second set_value would throw
  Watchdog watchdog(activity, 0.05, 3, [&report](const std::string& s) { report.set_value(s); });
  auto text = report.get_future();
  CHECK(text.wait_for(200ms) == std::future_status::timeout);  // nothing waits
  activity->begin("barrier", Purpose::control, "world", 1, 0, std::vector<int>{0, 3});
  REQUIRE(text.wait_for(longest) == std::future_status::ready);
  CHECK_THAT(text.get(), Catch::Contains("rank 3") && Catch::Contains("for rank 0:"));
}

TEST_CASE("many short waits are no long one, and timeout 0 is never") {
  auto activity = std::make_shared<Activity>();
  bool reported = false;
  const auto note = [&reported](const std::string&) { reported = true; };
  {
    const Watchdog watchdog(activity, 0.4, 0, note), never(activity, 0, 0, note);
    for (int i = 0; i < 40; ++i) {
      activity->begin("barrier", Purpose::control, "world", i, 0, {});
      std::this_thread::sleep_for(20ms);
      activity->end();
    }
  }
  CHECK(!reported);
}
