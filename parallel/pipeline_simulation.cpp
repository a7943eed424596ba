// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline_simulation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "kernels/error.h"

namespace bdlm {
namespace {

using Kind = PipelineAction::Kind;

std::string text_of(const PipelineAction& action) {
  return fmt::format("{} of micro-batch {}, chunk {}",
                     action.kind == Kind::forward ? "forward" : "backward", action.micro,
                     action.chunk);
}

int micro_batches_of(const StageActions& lists) {
  int count = 0;
  for (const auto& list : lists)
    for (const PipelineAction& action : list) count = std::max(count, action.micro + 1);
  return count;
}

/// When each pass through each virtual stage ended; negative: not yet.
class Ends {
 public:
  Ends(int stages, int chunks, int micro_batches)
      : virtual_stages_(stages * chunks),
        ends_(static_cast<std::size_t>(2 * virtual_stages_ * micro_batches), -1.0) {}

  double& at(Kind kind, int micro, int virtual_stage) {
    const int pass = kind == Kind::forward ? 0 : 1;
    return ends_[static_cast<std::size_t>((2 * micro + pass) * virtual_stages_ + virtual_stage)];
  }

  /// When what the pass needs is there; negative: not yet.
  double ready(Kind kind, int micro, int virtual_stage) {
    if (kind == Kind::forward)
      return virtual_stage == 0 ? 0 : at(Kind::forward, micro, virtual_stage - 1);
    const double own = at(Kind::forward, micro, virtual_stage);
    if (virtual_stage + 1 == virtual_stages_ || own < 0) return own;
    const double above = at(Kind::backward, micro, virtual_stage + 1);
    return above < 0 ? above : std::max(own, above);
  }

 private:
  int virtual_stages_;
  std::vector<double> ends_;
};

int peak_of(const std::vector<PipelineAction>& list) {
  int held = 0, peak = 0;
  for (const PipelineAction& action : list) {
    held += action.kind == Kind::forward ? 1 : -1;
    peak = std::max(peak, held);
  }
  const bool trains = std::ranges::any_of(
      list, [](const PipelineAction& action) { return action.kind == Kind::backward; });
  return trains ? peak : std::min(peak, 1);
}

[[noreturn]] void fail_stuck(const StageActions& lists, const std::vector<std::size_t>& next) {
  std::vector<std::string> waiting;
  for (std::size_t s = 0; s < lists.size(); ++s) {
    if (next[s] < lists[s].size())
      waiting.push_back(fmt::format("stage {} at {}", s, text_of(lists[s][next[s]])));
  }
  fail("the pipeline schedule is stuck: {}", fmt::join(waiting, "; "));
}

}  // namespace

StageActions all_actions(PipelineSchedule schedule, int stages, int chunks, int micro_batches) {
  StageActions lists;
  for (int s = 0; s < stages; ++s)
    lists.push_back(pipeline_actions(schedule, stages, chunks, micro_batches, s));
  return lists;
}

ScheduleFacts simulate(const StageActions& lists, int chunks, double forward_cost,
                       double backward_cost) {
  const int stages = static_cast<int>(lists.size());
  Ends ends(stages, chunks, micro_batches_of(lists));
  std::vector<std::size_t> next(lists.size(), 0);
  std::vector<double> clock(lists.size(), 0), work(lists.size(), 0);
  ScheduleFacts facts;

  for (bool moved = true; moved;) {
    moved = false;
    for (int s = 0; s < stages; ++s) {
      const auto stage = static_cast<std::size_t>(s);
      for (; next[stage] < lists[stage].size(); ++next[stage], moved = true) {
        const PipelineAction& action = lists[stage][next[stage]];
        require(action.micro >= 0 && action.chunk >= 0 && action.chunk < chunks,
                "the pipeline schedule of stage {} has {}, with {} chunks", s, text_of(action),
                chunks);
        const int virtual_stage = action.chunk * stages + s;
        double& end = ends.at(action.kind, action.micro, virtual_stage);
        require(end < 0, "the pipeline schedule of stage {} has {} twice", s, text_of(action));
        const double ready = ends.ready(action.kind, action.micro, virtual_stage);
        if (ready < 0) break;
        const double cost = action.kind == Kind::forward ? forward_cost : backward_cost;
        end = clock[stage] = std::max(clock[stage], ready) + cost;
        work[stage] += cost;
      }
    }
  }
  for (std::size_t s = 0; s < lists.size(); ++s) {
    if (next[s] < lists[s].size()) fail_stuck(lists, next);
    facts.span = std::max(facts.span, clock[s]);
    facts.peak_in_flight.push_back(peak_of(lists[s]));
  }
  const double most = work.empty() ? 0 : *std::ranges::max_element(work);
  facts.bubble = most > 0 ? (facts.span - most) / most : 0;
  return facts;
}

ScheduleFacts simulate(PipelineSchedule schedule, int stages, int chunks, int micro_batches,
                       double forward_cost, double backward_cost) {
  return simulate(all_actions(schedule, stages, chunks, micro_batches), chunks, forward_cost,
                  backward_cost);
}

void check_links(const StageActions& lists, int chunks) {
  const int stages = static_cast<int>(lists.size());
  const int last = stages * chunks - 1;
  for (const Kind kind : {Kind::forward, Kind::backward}) {
    // Activations climb to the next virtual stage, gradients descend.
    const int step = kind == Kind::forward ? 1 : -1;
    for (int from = 0; from < stages; ++from) {
      const int to = (from + step + stages) % stages;
      std::vector<PipelineAction> sent, received;  // as the passes that produce them
      for (const PipelineAction& a : lists[static_cast<std::size_t>(from)]) {
        const int above = a.chunk * stages + from + step;
        if (a.kind == kind && above >= 0 && above <= last) sent.push_back(a);
      }
      for (const PipelineAction& a : lists[static_cast<std::size_t>(to)]) {
        const int below = a.chunk * stages + to - step;
        if (a.kind == kind && below >= 0 && below <= last)
          received.push_back({kind, a.micro, below / stages});
      }
      const auto [s, r] = std::ranges::mismatch(sent, received);
      if (s == sent.end() && r == received.end()) continue;
      fail(
          "on the pipeline's link from stage {} to {} message {} is sent after {} but received as "
          "that of {}",
          from, to, s - sent.begin(), s == sent.end() ? "nothing more" : text_of(*s),
          r == received.end() ? "nothing more" : text_of(*r));
    }
  }
}

}  // namespace bdlm
