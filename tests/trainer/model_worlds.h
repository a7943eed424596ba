// SPDX-License-Identifier: Apache-2.0
// All ranks of a mesh without MPI: what each holds of the model, and what it owns of that.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "model/parameters.h"

namespace bdlm::test {

struct WorldSizes {
  int tensor = 1, replicas = 1, pipeline = 1, virtual_stages = 1, expert = 1;
  int stage_ranks() const { return tensor * replicas; }
  int ranks() const { return stage_ranks() * pipeline; }
};

struct WorldRank {
  ParameterLayout layout;
  std::vector<FlatRange> parts;  // owned: every element of the model by one rank of the world
};

/// Sets are cut over their holders in buckets of an odd size, so that parts begin anywhere.
inline std::vector<WorldRank> world_ranks(const ModelConfig& config, const WorldSizes& sizes) {
  constexpr std::int64_t bucket = 101;
  std::vector<WorldRank> out;
  std::vector<ModelShard> shards;
  std::map<std::pair<std::size_t, int>, std::vector<int>> holders;  // (set, group) -> ranks
  std::vector<std::vector<int>> groups;                             // by rank and set
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const int seat = rank % sizes.stage_ranks(), stage = rank / sizes.stage_ranks();
    ModelShard shard;
    shard.tensor = sizes.tensor;
    shard.tensor_rank = seat % sizes.tensor;
    shard.expert = sizes.expert;
    shard.expert_rank = seat % sizes.expert;
    shard.pipelined = sizes.pipeline > 1;
    shard.first = stage == 0;
    shard.last = stage == sizes.pipeline - 1;
    for (int chunk = 0; chunk < sizes.virtual_stages; ++chunk) {
      const FlatRange layers = share_of(config.num_hidden_layers, chunk * sizes.pipeline + stage,
                                        sizes.pipeline * sizes.virtual_stages);
      shard.chunks.push_back({layers.begin, layers.begin + layers.count});
    }
    out.push_back({layout_of(config, shard), {}});
    const int keys = static_cast<int>(config.num_key_value_heads);
    const int head =
        keys < sizes.tensor ? shard.tensor_rank / (sizes.tensor / keys) : shard.tensor_rank;
    const bool tied = shard.pipelined && (shard.first || shard.last);
    const std::vector<int> group{stage * 1000 + shard.tensor_rank, stage * 1000 + head,
                                 stage * 1000, stage * 1000 + shard.expert_rank,
                                 tied ? shard.tensor_rank : -1 - rank};
    for (std::size_t set = 0; set < holder_sets; ++set) holders[{set, group[set]}].push_back(rank);
    groups.push_back(group);
  }
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    WorldRank& here = out[static_cast<std::size_t>(rank)];
    for (std::size_t set = 0; set < holder_sets; ++set) {
      const auto& group = holders[{set, groups[static_cast<std::size_t>(rank)][set]}];
      const auto place = static_cast<int>(std::ranges::find(group, rank) - group.begin());
      const FlatRange range = here.layout.sets[set];
      for (std::int64_t at = 0; at < range.count; at += bucket) {
        const FlatRange own =
            share_of(std::min(bucket, range.count - at), place, static_cast<int>(group.size()));
        if (own.count > 0) here.parts.push_back({range.begin + at + own.begin, own.count});
      }
    }
  }
  return out;
}

}  // namespace bdlm::test
