// SPDX-License-Identifier: Apache-2.0
// A mesh as text: which ranks hold what, who talks to whom, and about what.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "parallel/layer_cut.h"
#include "parallel/mesh.h"

namespace bdlm {

struct MeshContents {
  int virtual_stages = 1;
  std::span<const LayerRange> layers{};  // by virtual stage: chunk * pipeline + stage
  std::int64_t experts = 0;              // of a mixture-of-experts layer; 0: none
  bool tied_embeddings = false;
  int key_copies = 1;  // tensor ranks that share a key/value head
  int zero = 1;
};

/// For each pipeline stage its layers and its ranks, then for each axis above 1 its groups and what
/// travels in them. Plain ASCII of at most 100 columns, made for 1 to 64 ranks; of more groups than
/// fit two lines the first are shown. layers has pipeline x virtual_stages ranges.
std::string mesh_picture(const MeshSizes& sizes, const MeshContents& contents);

}  // namespace bdlm
