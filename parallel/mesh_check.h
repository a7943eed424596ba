// SPDX-License-Identifier: Apache-2.0
// Whether a mesh can carry a model, from plain numbers, and what to change where it cannot.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/pipeline_schedule.h"

namespace bdlm {

/// What the axes split. heads = 0: the model is not known, and nothing is asked of it. Vocabulary
/// and MLP width are not here: they are cut unevenly where they do not divide, shards may be empty.
struct ModelSizes {
  std::int64_t heads = 0, kv_heads = 0, layers = 0;
  std::int64_t experts = 0;  // 0: no mixture-of-experts layer
};

struct MeshRequest {
  MeshSizes sizes{};  // data is not looked at: it is what is left of the world
  std::int64_t world = 1;
  int virtual_stages = 1;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  ModelSizes model{};
};

struct MeshFinding {
  std::string key;       // that the user would change: parallel.tensor
  std::string sentence;  // names key and value, and the nearest sizes below and above that work
};

/// All that is wrong, none: the mesh works. The rules:
///   world           a multiple of tensor x csbp x pipeline
///   expert          divides the ranks of a stage, tensor x csbp x data (experts are folded over
///                   them: groups of `expert` consecutive ranks), and the number of experts
///   tensor          divides heads; divides KV heads or is a multiple of them (then replicated)
///   pipeline        layers >= pipeline x virtual_stages
///   virtual_stages  above 1 with pipeline above 1 and schedule interleaved only
/// A size is suggested when it mends its own rule and breaks no other.
std::vector<MeshFinding> check_mesh(const MeshRequest& request);

/// The fewest ranks on which the sizes work: for checks that do not know the launch.
std::int64_t smallest_world(const MeshSizes& sizes);

}  // namespace bdlm
