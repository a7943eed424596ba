// SPDX-License-Identifier: Apache-2.0
#include "parallel/mesh_groups.h"

#include <algorithm>
#include <map>

namespace bdlm {
namespace {

template <class PlaceOf>
RankGroups groups_by(const MeshSizes& sizes, PlaceOf place_of) {
  RankGroups groups;
  std::map<int, std::size_t> index;
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const auto [found, is_new] = index.try_emplace(place_of(rank).group, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(rank);
  }
  for (auto& group : groups)
    std::ranges::sort(group, {}, [&](int rank) { return place_of(rank).rank; });
  return groups;
}

}  // namespace

RankGroups groups_along(Axis axis, const MeshSizes& sizes) {
  return groups_by(sizes, [&](int rank) { return place_along(axis, sizes, rank); });
}

RankGroups groups_among(Holders holders, const MeshSizes& sizes, int key_copies) {
  return groups_by(sizes, [&](int rank) { return place_among(holders, sizes, rank, key_copies); });
}

RankGroups pipeline_columns(const MeshSizes& sizes) {
  const int stage = sizes.ranks() / sizes.pipeline;
  return groups_by(sizes, [&](int rank) {
    return GroupPlace{rank % stage, rank / stage, sizes.pipeline};
  });
}

}  // namespace bdlm
