// SPDX-License-Identifier: Apache-2.0
#include "trainer/model_placement.h"

#include <algorithm>

#include "model/layer_costs.h"

namespace bdlm {

int key_copies(const RunConfig& config) {
  const auto heads = static_cast<int>(config.model.config.num_key_value_heads);
  return std::max(1, config.parallel.mesh.tensor / heads);
}

std::vector<LayerRange> stage_layers(const RunConfig& config) {
  const ModelConfig& m = config.model.config;
  // A row sees half of its row's tokens on average, less where documents are short.
  const double keys = static_cast<double>(config.data.row_tokens) / 2;
  // Corruption rates are spread evenly: half of the positions are scored, in one view each.
  const double copies = 1 + static_cast<double>(config.objective.view_count());
  const double scored = (config.objective.views == Views::complementary ? 1 : 0.5) / copies;
  return cut_layers(layer_costs(m, keys), embedding_cost(m), head_cost(m, scored),
                    config.parallel.mesh.pipeline * config.parallel.virtual_stages);
}

ModelShard shard_of(const RunConfig& config, int rank) {
  const MeshSizes& sizes = config.parallel.mesh;
  const MeshPosition at = position_of(sizes, rank);
  ModelShard shard;
  shard.tensor = sizes.tensor;
  shard.tensor_rank = at.tensor;
  shard.expert = sizes.expert;
  shard.expert_rank = place_along(Axis::expert, sizes, rank).rank;
  shard.pipelined = sizes.pipeline > 1;
  const std::vector<LayerRange> stages = stage_layers(config);
  for (int chunk = 0; chunk < config.parallel.virtual_stages; ++chunk)
    shard.chunks.push_back(stages[static_cast<std::size_t>(chunk * sizes.pipeline + at.pipeline)]);
  shard.first = at.pipeline == 0;
  shard.last = at.pipeline == sizes.pipeline - 1;
  return shard;
}

}  // namespace bdlm
