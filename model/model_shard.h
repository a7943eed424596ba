// SPDX-License-Identifier: Apache-2.0
// The part of a model that a rank holds: its pipeline stages' layers, its share of heads, MLP width
// and vocabulary (tensor), its experts. docs/parallelism.md.
#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "parallel/layer_cut.h"
#include "parallel/zero.h"

namespace bdlm {

struct ModelShard {
  int tensor = 1, tensor_rank = 0;  // size of the tensor group, place in it
  int expert = 1, expert_rank = 0;  // of the expert group
  bool pipelined = false;           // some of the layers are elsewhere
  std::vector<LayerRange> chunks;   // layers of each virtual stage of this rank, ascending
  bool first = true, last = true;   // holds the embedding; the final norm and the head

  std::int64_t layers() const;  // of all chunks
};

/// Everything on one rank.
ModelShard whole_model(const ModelConfig& config);

/// Part `rank` of `size` elements cut into `ranks` parts that differ by one at most; may be empty.
FlatRange share_of(std::int64_t size, int rank, int ranks);

/// The decoder's sizes on this rank: heads, key/value heads (at least one), intermediate_size (which
/// may become 0). hidden_size, vocab_size, experts and layers stay those of the model. Throws Error
/// for heads that the tensor group cannot cut.
ModelConfig local_config(const ModelConfig& config, const ModelShard& shard);

}  // namespace bdlm
