// SPDX-License-Identifier: Apache-2.0
// Who is in a group with whom, as lists of ranks: for what is printed, without any communicator.
#pragma once

#include <vector>

#include "parallel/mesh.h"

namespace bdlm {

/// Each group's ranks in the group's own order, the group of the lowest rank first. Every rank is in
/// one of them. sizes.expert divides the ranks of a stage (fit_mesh).
using RankGroups = std::vector<std::vector<int>>;
RankGroups groups_along(Axis axis, const MeshSizes& sizes);
RankGroups groups_among(Holders holders, const MeshSizes& sizes, int key_copies = 1);
/// Ranks that differ in their stage only, in the order of stages.
RankGroups pipeline_columns(const MeshSizes& sizes);

}  // namespace bdlm
