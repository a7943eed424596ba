// SPDX-License-Identifier: Apache-2.0
// Pipeline schedules over all small sizes: complete, in order, without deadlock, with the bubbles
// and peaks of the textbook; and whether broken ones are noticed.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <random>
#include <set>
#include <tuple>

#include "parallel/pipeline_schedule.h"
#include "parallel/pipeline_simulation.h"

using namespace bdlm;
using Kind = PipelineAction::Kind;

namespace {

constexpr auto f1b1 = PipelineSchedule::one_forward_one_backward;
constexpr auto interleaved = PipelineSchedule::interleaved;

struct Sizes {
  PipelineSchedule schedule;
  int stages, chunks, micro;
};

/// Stages 1 to 8, chunks 1 to 4, micro-batches 0 to 20.
void sweep(const std::function<void(const Sizes&)>& test) {
  for (int stages = 1; stages <= 8; ++stages)
    for (int chunks = 1; chunks <= 4; ++chunks)
      for (int micro = 0; micro <= 20; ++micro)
        for (const auto schedule : {f1b1, interleaved}) {
          if (chunks > 1 && (stages == 1 || schedule == f1b1)) continue;
          CAPTURE(stages, chunks, micro, schedule == interleaved);
          test({schedule, stages, chunks, micro});
        }
}

/// Whether the lists can run, by a search that knows only what a pass needs: written unlike
/// simulate(), to judge it.
bool can_run(const StageActions& lists, int chunks) {
  const int stages = static_cast<int>(lists.size());
  std::set<std::tuple<Kind, int, int>> done;
  std::vector<std::size_t> at(lists.size(), 0);
  const auto has = [&](Kind kind, int micro, int v) { return done.contains({kind, micro, v}); };
  for (int idle = 0; idle < stages;) {
    for (int s = 0; s < stages; ++s) {
      const auto& list = lists[static_cast<std::size_t>(s)];
      std::size_t& i = at[static_cast<std::size_t>(s)];
      if (i == list.size()) {
        ++idle;
        continue;
      }
      const auto [kind, micro, chunk] = list[i];
      const int v = chunk * stages + s;
      const bool ready = kind == Kind::forward
                             ? v == 0 || has(kind, micro, v - 1)
                             : has(Kind::forward, micro, v) &&
                                   (v == stages * chunks - 1 || has(Kind::backward, micro, v + 1));
      idle = ready ? 0 : idle + 1;
      if (ready) {
        done.insert({kind, micro, v});
        ++i;
      }
    }
  }
  for (std::size_t s = 0; s < lists.size(); ++s)
    if (at[s] < lists[s].size()) return false;
  return true;
}

std::vector<PipelineAction> of_kind(std::vector<PipelineAction> list, Kind kind) {
  std::erase_if(list, [kind](const PipelineAction& a) { return a.kind != kind; });
  return list;
}

}  // namespace

TEST_CASE("a pipeline schedule has every pass once") {
  sweep([](const Sizes& sizes) {
    const auto& [schedule, stages, chunks, micro] = sizes;
    for (int s = 0; s < stages; ++s) {
      const auto list = pipeline_actions(schedule, stages, chunks, micro, s);
      std::set<std::tuple<Kind, int, int>> seen;
      for (const auto& a : list) {
        REQUIRE((a.micro >= 0 && a.micro < micro && a.chunk >= 0 && a.chunk < chunks));
        REQUIRE(seen.insert({a.kind, a.micro, a.chunk}).second);
      }
      REQUIRE(static_cast<int>(list.size()) == 2 * micro * chunks);
    }
  });
}

TEST_CASE("pipeline schedules run without deadlock and keep the order of links") {
  sweep([](const Sizes& sizes) {
    const auto lists = all_actions(sizes.schedule, sizes.stages, sizes.chunks, sizes.micro);
    REQUIRE(can_run(lists, sizes.chunks));
    REQUIRE_NOTHROW(simulate(lists, sizes.chunks, 1, 2));
    REQUIRE_NOTHROW(check_links(lists, sizes.chunks));
  });
}

TEST_CASE("the bubble of a pipeline schedule is that of the textbook") {
  sweep([](const Sizes& sizes) {
    const auto& [schedule, stages, chunks, micro] = sizes;
    for (const double backward : {1.0, 2.0, 3.5}) {
      const auto facts = simulate(schedule, stages, chunks, micro, 1, backward);
      const double work = micro * chunks * (1 + backward);
      REQUIRE(facts.span == Approx(work * (1 + facts.bubble)));
      if (micro == 0) {
        REQUIRE(facts.bubble == 0);
      } else if (chunks == 1 || micro % stages == 0) {
        REQUIRE(facts.bubble == Approx((stages - 1.0) / (chunks * micro)));
      } else {  // not worse than with the last group filled up
        const int full = (micro + stages - 1) / stages * stages;
        const auto filled = simulate(schedule, stages, chunks, full, 1, backward);
        REQUIRE(facts.span <= filled.span * (1 + 1e-12));
      }
    }
  });
}

TEST_CASE("the peak of activations of a pipeline stage") {
  sweep([](const Sizes& sizes) {
    const auto& [schedule, stages, chunks, micro] = sizes;
    const auto facts = simulate(schedule, stages, chunks, micro, 1, 2);
    for (int s = 0; s < stages; ++s) {
      const int peak = facts.peak_in_flight[static_cast<std::size_t>(s)];
      if (chunks == 1) {
        REQUIRE(peak == std::min(micro, stages - s));
      } else {
        const int most = 2 * (stages - 1 - s) + (chunks - 1) * stages + 1;
        REQUIRE(peak <= std::min(micro * chunks, most));
        if (micro % stages == 0) REQUIRE(peak == std::min(micro * chunks, most));
      }
    }
  });
}

TEST_CASE("one stage alternates forward and backward") {
  const std::vector<PipelineAction> expected = {
      {Kind::forward, 0, 0}, {Kind::backward, 0, 0}, {Kind::forward, 1, 0}, {Kind::backward, 1, 0}};
  CHECK(pipeline_actions(f1b1, 1, 1, 2, 0) == expected);
}

TEST_CASE("the interleaved schedule of two stages, two chunks and three micro-batches") {
  // The second group lacks micro-batch 3.
  const auto text = [](int stage) {
    std::string out;
    for (const auto& a : pipeline_actions(interleaved, 2, 2, 3, stage))
      out += fmt::format("{}{}.{} ", a.kind == Kind::forward ? 'F' : 'B', a.micro, a.chunk);
    return out;
  };
  CHECK(text(0) == "F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 B1.1 F2.1 B0.0 B1.0 B2.1 B2.0 ");
  CHECK(text(1) == "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 B1.0 F2.1 B2.1 B2.0 ");
}

TEST_CASE("evaluation runs the forward passes alone") {
  sweep([](const Sizes& sizes) {
    const auto& [schedule, stages, chunks, micro] = sizes;
    StageActions lists;
    for (int s = 0; s < stages; ++s) {
      lists.push_back(forward_actions(schedule, stages, chunks, micro, s));
      REQUIRE(static_cast<int>(lists.back().size()) == micro * chunks);
    }
    REQUIRE(can_run(lists, chunks));
    check_links(lists, chunks);
    for (const int peak : simulate(lists, chunks, 1, 2).peak_in_flight)
      REQUIRE(peak == std::min(micro, 1));
  });
}

TEST_CASE("a broken pipeline schedule is noticed") {
  std::mt19937 random(7);
  int stuck = 0, disordered = 0, harmless = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const int stages = 2 + trial % 4, chunks = 1 + trial % 3, micro = 1 + trial % 9;
    auto lists = all_actions(chunks > 1 ? interleaved : f1b1, stages, chunks, micro);
    auto& list = lists[random() % lists.size()];
    const auto before = list;
    const std::size_t a = random() % list.size(), b = random() % list.size();
    if (a == b) continue;
    std::swap(list[a], list[b]);
    const bool kept = of_kind(list, Kind::forward) == of_kind(before, Kind::forward) &&
                      of_kind(list, Kind::backward) == of_kind(before, Kind::backward);
    CAPTURE(stages, chunks, micro, a, b);
    if (!can_run(lists, chunks)) {
      ++stuck;
      CHECK_THROWS_WITH(simulate(lists, chunks, 1, 2), Catch::Contains("is stuck: stage "));
      continue;
    }
    CHECK_NOTHROW(simulate(lists, chunks, 1, 2));
    if (kept) {  // a forward pass among other backward passes: another schedule, not a wrong one
      ++harmless;
      CHECK_NOTHROW(check_links(lists, chunks));
    } else {
      ++disordered;
      CHECK_THROWS_WITH(check_links(lists, chunks), Catch::Contains("link from stage"));
    }
  }
  CHECK(stuck > 100);
  CHECK(disordered > 100);
  CHECK(harmless > 5);
}

TEST_CASE("what is stuck in a pipeline is named") {
  auto lists = all_actions(f1b1, 2, 1, 2);
  std::swap(lists[1][0], lists[1][1]);
  CHECK_THROWS_WITH(
      simulate(lists, 1, 1, 2),
      "the pipeline schedule is stuck: stage 0 at backward of micro-batch 0, chunk 0; "
      "stage 1 at backward of micro-batch 0, chunk 0");
  lists[1].clear();
  CHECK_THROWS_WITH(simulate(lists, 1, 1, 2), Catch::Contains("stage 0 at backward"));
  CHECK_THROWS_WITH(check_links(lists, 1), Catch::Contains("received as that of nothing more"));
  lists[0] = {{Kind::forward, 0, 0}, {Kind::forward, 0, 0}};
  CHECK_THROWS_WITH(simulate(lists, 1, 1, 2),
                    Catch::Contains("has forward of micro-batch 0, chunk 0 twice"));
  lists[0] = {{Kind::forward, 0, 1}};
  CHECK_THROWS_WITH(simulate(lists, 1, 1, 2), Catch::Contains("with 1 chunks"));
}

TEST_CASE("pipeline sizes that cannot be") {
  CHECK_THROWS_WITH(pipeline_actions(f1b1, 2, 2, 4, 0), Catch::Contains("parallel.schedule"));
  CHECK_THROWS_WITH(pipeline_actions(interleaved, 1, 2, 4, 0),
                    Catch::Contains("parallel.virtual_stages"));
  CHECK_THROWS_WITH(pipeline_actions(f1b1, 2, 1, 4, 2), Catch::Contains("has no stage 2"));
  CHECK_THROWS_WITH(pipeline_actions(f1b1, 0, 1, 4, 0), Catch::Contains("0 stages"));
}
