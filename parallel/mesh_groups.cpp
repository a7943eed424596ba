// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh_groups.h"

#include <array>
#include <map>

namespace bdlm {
namespace {

/// Equal for the ranks of one group.
std::array<int, 4> key_of(RankGroup kind, const MeshSizes& sizes, int rank) {
  const auto [t, c, d, p] = position_of(sizes, rank);
  const int within = rank % (sizes.tensor * sizes.csbp * sizes.data);
  switch (kind) {
    case RankGroup::tensor:
      return {0, c, d, p};
    case RankGroup::csbp:
      return {t, 0, d, p};
    case RankGroup::data:
      return {t, c, 0, p};
    case RankGroup::pipeline:
      return {t, c, d, 0};
    case RankGroup::expert:
      return {within / sizes.expert, 0, 0, p};
    case RankGroup::replicas:
      return {t, 0, 0, p};
    case RankGroup::stage:
      return {0, 0, 0, p};
    case RankGroup::expert_replicas:
      return {within % sizes.expert, 0, 0, p};
  }
  return {};
}

}  // namespace

std::vector<std::vector<int>> groups_of(RankGroup kind, const MeshSizes& sizes) {
  std::vector<std::vector<int>> groups;
  std::map<std::array<int, 4>, std::size_t> index;
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const auto [found, is_new] = index.try_emplace(key_of(kind, sizes, rank), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(rank);
  }
  return groups;
}

}  // namespace bdlm
