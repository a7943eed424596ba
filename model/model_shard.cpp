// SPDX-License-Identifier: Apache-2.0
#include "model/model_shard.h"

#include <algorithm>

#include "kernels/error.h"

namespace bdlm {

std::int64_t ModelShard::layers() const {
  std::int64_t sum = 0;
  for (const LayerRange& chunk : chunks) sum += chunk.count();
  return sum;
}

ModelShard whole_model(const ModelConfig& config) {
  ModelShard shard;
  shard.chunks = {{0, config.num_hidden_layers}};
  return shard;
}

FlatRange share_of(std::int64_t size, int rank, int ranks) {
  const std::int64_t begin = size * rank / ranks;
  return {begin, size * (rank + 1) / ranks - begin};
}

ModelConfig local_config(const ModelConfig& config, const ModelShard& shard) {
  const std::int64_t tensor = shard.tensor, keys = config.num_key_value_heads;
  require(config.num_attention_heads % tensor == 0,
          "{} attention heads cannot be cut over {} tensor ranks", config.num_attention_heads,
          tensor);
  require(keys % tensor == 0 || tensor % keys == 0,
          "{} key/value heads cannot be cut over {} tensor ranks: one number must be a multiple of "
          "the other",
          keys, tensor);
  ModelConfig local = config;
  local.num_attention_heads /= tensor;
  local.num_key_value_heads = std::max<std::int64_t>(keys / tensor, 1);
  local.intermediate_size =
      share_of(config.intermediate_size, shard.tensor_rank, shard.tensor).count;
  return local;
}

}  // namespace bdlm
