// SPDX-License-Identifier: Apache-2.0
// Which part of the model a rank of the run's mesh holds. Pure: every rank, and every plan, finds the
// same.
#pragma once

#include <vector>

#include "model/model_shard.h"
#include "parallel/mesh.h"
#include "trainer/run_config.h"

namespace bdlm {

/// Tensor ranks that share a key/value head; 1 where there are heads for all.
int key_copies(const RunConfig& config);

/// Layers of every virtual stage, cut so that the costliest costs least.
std::vector<LayerRange> stage_layers(const RunConfig& config);

ModelShard shard_of(const RunConfig& config, int rank);

}  // namespace bdlm
