// SPDX-License-Identifier: Apache-2.0
// Lists of `--set` words, one a combination, under which a golden case must give the same.
#pragma once

#include <string>
#include <vector>

#include "parallel/mesh_check.h"

namespace bdlm {

using Combinations = std::vector<std::vector<std::string>>;

/// Every split of the launch into csbp x data, with every sharding, exchange, deal, recomputation
/// and both elide settings. Combinations that are the same by definition (bp exchanges nothing; cp
/// deals by position) are left out.
Combinations mode_sweep(int world);

/// zero x sharding x recomputation, all 27.
Combinations zero_sweep();

/// Every split of the launch into tensor x csbp x pipeline (x virtual stages) x data, with every
/// number of expert ranks, that can carry the model. Each with three of the nine rows of an
/// orthogonal array of zero, sharding and recomputation, in turn: every value of each on every
/// topology, every pair of values on one of three.
Combinations topology_sweep(int world, const ModelSizes& model);

}  // namespace bdlm
