// SPDX-License-Identifier: Apache-2.0
// A stage has one message under way a link: before the next one it waits until the other side has
// asked for it, and a stage asks for what its next pass needs when it begins the one before it
// (trainer/pipeline.h). This must not lock up even where a message leaves only when it is asked for.
#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "parallel/pipeline_simulation.h"

using namespace bdlm;

namespace {

using Key = std::tuple<bool, int, int>;  // forward, micro-batch, virtual stage

Key key_of(const PipelineAction& a, int stage, int stages) {
  return {a.kind == PipelineAction::Kind::forward, a.micro, a.chunk * stages + stage};
}

struct Stage {
  std::vector<PipelineAction> actions;
  std::map<Key, std::size_t> place;
  std::size_t at = 0;
  bool made = false;  // the action has been run, its message has not left
  std::map<bool, Key> under_way;  // by flow: whose message waits to be asked for
};

/// Whether all stages come to their ends.
bool runs(const StageActions& lists, int chunks) {
  const int stages = static_cast<int>(lists.size()), last = stages * chunks - 1;
  std::vector<Stage> all(lists.size());
  std::map<Key, bool> sent;
  for (int s = 0; s < stages; ++s) {
    all[s].actions = lists[s];
    for (std::size_t i = 0; i < lists[s].size(); ++i)
      all[s].place[key_of(lists[s][i], s, stages)] = i;
  }
  const auto consumer_of = [&](const Key& key) {
    const auto [forward, micro, v] = key;
    return Key{forward, micro, forward ? v + 1 : v - 1};
  };
  const auto asked_for = [&](const Key& key) {
    const Key consumer = consumer_of(key);
    const Stage& s = all[static_cast<std::size_t>(std::get<2>(consumer) % stages)];
    return s.at + 1 >= s.place.at(consumer);  // it has begun the action before it
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < stages; ++s) {
      Stage& stage = all[static_cast<std::size_t>(s)];
      if (stage.at == stage.actions.size()) continue;
      const Key key = key_of(stage.actions[stage.at], s, stages);
      const auto [forward, micro, v] = key;
      if (!stage.made) {
        const bool begins = forward ? v == 0 : v == last;
        const Key source{forward, micro, forward ? v - 1 : v + 1};
        if (!begins && !sent[source]) continue;
        stage.made = true;
        moved = true;
      }
      const bool ends = forward ? v == last : v == 0;
      if (!ends) {
        const auto before = stage.under_way.find(forward);
        if (before != stage.under_way.end() && !asked_for(before->second)) continue;
        stage.under_way[forward] = key;
        sent[key] = true;
      }
      stage.made = false;
      ++stage.at;
      moved = true;
    }
  }
  for (const Stage& stage : all)
    if (stage.at != stage.actions.size()) return false;
  return true;
}

}  // namespace

TEST_CASE("one message under way a link is enough", "[pipeline_sends]") {
  for (int stages = 2; stages <= 8; ++stages)
    for (int chunks = 1; chunks <= 4; ++chunks)
      for (int micro = 0; micro <= 20; ++micro) {
        const auto schedule = chunks == 1 ? PipelineSchedule::one_forward_one_backward
                                          : PipelineSchedule::interleaved;
        INFO(stages << " stages, " << chunks << " chunks, " << micro << " micro-batches");
        REQUIRE(runs(all_actions(schedule, stages, chunks, micro), chunks));
      }
}
