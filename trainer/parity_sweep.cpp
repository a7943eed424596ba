// SPDX-License-Identifier: Apache-2.0
#include "trainer/parity_sweep.h"

#include <array>

#include "kernels/error.h"

namespace bdlm {
namespace {

constexpr std::array shardings{"csbp", "bp", "cp"};
constexpr std::array recomputes{"none", "selective", "full"};

std::vector<std::string> zero_words(std::size_t zero, std::size_t sharding, std::size_t recompute) {
  return {fmt::format("parallel.zero={}", zero + 1),
          fmt::format("parallel.sharding={}", shardings[sharding]),
          fmt::format("recompute.mode={}", recomputes[recompute])};
}

/// Row `i` of the orthogonal array L9 of three factors at three levels (Taguchi).
std::vector<std::string> zero_words_in_turn(std::size_t i) {
  return zero_words(i % 3, i / 3 % 3, (i + i / 3) % 3);
}

}  // namespace

Combinations mode_sweep(int world) {
  struct Sharded {
    const char *sharding, *exchange, *deal;
  };
  std::vector<Sharded> ways;
  for (const char* exchange : {"exact", "allgather", "ring"}) {
    for (const char* deal : {"balanced", "head_tail", "contiguous", "round_robin"})
      ways.push_back({"csbp", exchange, deal});
    for (const char* deal : {"head_tail", "contiguous"}) ways.push_back({"cp", exchange, deal});
  }
  for (const char* deal : {"balanced", "head_tail", "contiguous", "round_robin"})
    ways.push_back({"bp", "exact", deal});

  Combinations all;
  for (int csbp = 1; csbp <= world; ++csbp) {
    if (world % csbp != 0) continue;
    for (const Sharded& way : ways)
      for (const char* recompute : recomputes)
        for (const char* elide : {"all", "none"})
          all.push_back({fmt::format("parallel.csbp={}", csbp),
                         fmt::format("parallel.sharding={}", way.sharding),
                         fmt::format("parallel.exchange={}", way.exchange),
                         fmt::format("parallel.deal={}", way.deal),
                         fmt::format("recompute.mode={}", recompute),
                         fmt::format("parallel.elide={}", elide)});
  }
  return all;
}

Combinations zero_sweep() {
  Combinations all;
  for (std::size_t zero = 0; zero < 3; ++zero)
    for (std::size_t sharding = 0; sharding < 3; ++sharding)
      for (std::size_t recompute = 0; recompute < 3; ++recompute)
        all.push_back(zero_words(zero, sharding, recompute));
  return all;
}

Combinations topology_sweep(int world, const ModelSizes& model) {
  Combinations all;
  std::size_t turn = 0;
  const auto add = [&](const MeshSizes& sizes, int virtual_stages) {
    const auto schedule = virtual_stages > 1 ? PipelineSchedule::interleaved
                                             : PipelineSchedule::one_forward_one_backward;
    if (!check_mesh({sizes, world, virtual_stages, schedule, model}).empty()) return;
    for (std::size_t i = 0; i < 3; ++i) {
      // Rows 3 j, 3 j + 1, 3 j + 2 of the array share one value: take one of each triple.
      std::vector<std::string> words = zero_words_in_turn(3 * i + (turn + i) % 3);
      for (const auto& [name, value] :
           {std::pair("tensor", sizes.tensor), {"csbp", sizes.csbp}, {"pipeline", sizes.pipeline},
            {"expert", sizes.expert}, {"virtual_stages", virtual_stages}})
        words.push_back(fmt::format("parallel.{}={}", name, value));
      if (virtual_stages > 1) words.push_back("parallel.schedule=interleaved");
      all.push_back(std::move(words));
    }
    ++turn;
  };
  for (int tensor = 1; tensor <= world; ++tensor)
    for (int csbp = 1; csbp <= world; ++csbp)
      for (int pipeline = 1; pipeline <= world; ++pipeline) {
        if (world % (tensor * csbp * pipeline) != 0) continue;
        const int stage = world / pipeline;
        for (int expert = 1; expert <= (model.experts > 0 ? stage : 1); ++expert)
          for (int virtual_stages = 1; virtual_stages <= (pipeline > 1 ? 3 : 1); ++virtual_stages)
            add({tensor, csbp, stage / (tensor * csbp), pipeline, expert}, virtual_stages);
      }
  return all;
}

}  // namespace bdlm
