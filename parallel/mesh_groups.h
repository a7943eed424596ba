// SPDX-License-Identifier: Apache-2.0
// Who is in a group with whom, as lists of ranks: for what is printed, without any communicator.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/mesh.h"

namespace bdlm {

enum class RankGroup : std::uint8_t {
  tensor,           // share a layer
  csbp,             // share a packed row
  data,             // hold the same place in other replicas
  pipeline,         // share the depth, in the order of stages
  expert,           // consecutive ranks of a stage, over which the experts are spread
  replicas,         // csbp x data: hold the same parameters where tensor splits them
  stage,            // tensor x csbp x data: hold the same parameters where it does not
  expert_replicas,  // hold the same experts
};

/// All groups of a kind, each in ascending ranks, the group of the lowest rank first. Every rank is
/// in one of them. sizes.expert divides the ranks of a stage (fit_mesh).
std::vector<std::vector<int>> groups_of(RankGroup kind, const MeshSizes& sizes);

}  // namespace bdlm
