// SPDX-License-Identifier: Apache-2.0
#include "trainer/stage_layers.h"

#include <algorithm>

#include "trainer/step_batch.h"

namespace bdlm {

std::vector<LayerRange> stage_layers(const RunConfig& config) {
  const ModelConfig& model = config.model.config;
  const LayerShapes shapes = layer_shapes(model);
  const auto tokens = static_cast<double>(config.data.row_tokens);
  const double views = static_cast<double>(config.objective.view_count());
  std::vector<double> costs;
  for (const std::int64_t window : shapes.windows) {
    // A position sees half of the row, or its window.
    const double seen =
        window == 0 ? tokens / 2 : std::min(tokens / 2, static_cast<double>(window));
    costs.push_back((1 + views) * tokens * (shapes.row_cost + shapes.pair_cost * seen));
  }
  // Corruption rates are spread evenly: half of the positions are scored, in one view each.
  const double head = 6 * static_cast<double>(model.hidden_size * model.vocab_size) * tokens / 2;
  const double embedding = static_cast<double>(model.hidden_size) * (1 + views) * tokens;
  const int stages = config.parallel.mesh.pipeline * config.parallel.virtual_stages;
  return cut_layers(costs, embedding, head, stages);
}

}  // namespace bdlm
