// SPDX-License-Identifier: Apache-2.0
// What a row of the doubled stream costs in each part of the model, to cut its layers into pipeline
// stages of equal work and to deal blocks to ranks. FLOPs of a forward and backward pass: 6 a
// weight that the row meets, 12 a query channel and key that it sees.
#pragma once

#include <vector>

#include "model/config.h"

namespace bdlm {

/// Weights that a row meets in a layer, its key and value projections included: of a mixture the
/// chosen experts, the shared ones and the router.
double layer_weights(const ModelConfig& config, std::int64_t layer);

/// A layer each. `keys`: how many a row sees on average without a window; 0 leaves attention out.
std::vector<double> layer_costs(const ModelConfig& config, double keys = 0);
/// Of the embedding: copying a row, nearly nothing.
double embedding_cost(const ModelConfig& config);
/// Of the head, per row of the stream. `scored`: share of the rows whose logits are computed; about
/// half of the corrupted half.
double head_cost(const ModelConfig& config, double scored = 0.25);

}  // namespace bdlm
