// SPDX-License-Identifier: Apache-2.0
// Where ranks run: nodes and devices, and which groups' messages go over the network.
#pragma once

#include <span>
#include <string>

#include "parallel/mesh.h"

namespace bdlm {

struct RankPlace {
  int node = 0;  // the lowest rank on the same machine; host names need not differ
  std::string host, device;
};

/// A table of nodes, their ranks and devices, and a line an axis above 1: whether its groups stay
/// inside a node. `places` by rank of the world, as many as the mesh has ranks.
std::string describe_placement(std::span<const RankPlace> places, const MeshSizes& sizes);

/// One line when a tensor or csbp group, which talk in every layer, crosses nodes, with the key to
/// change and the largest size that stays inside; else empty.
std::string placement_warning(std::span<const RankPlace> places, const MeshSizes& sizes);

/// Ascending numbers in short: "0-3, 6".
std::string rank_ranges(std::span<const int> ranks);

}  // namespace bdlm
