// SPDX-License-Identifier: Apache-2.0
// What the keys of a run file must be to each other.
#pragma once

#include <functional>
#include <string>

#include "parallel/mesh_check.h"
#include "trainer/run_config.h"

namespace bdlm {

/// Told of every finding: the key that the user would change, and a sentence that names the other.
using Report = std::function<void(const std::string& key, const std::string& sentence)>;

bool has_model(const RunConfig& config);

/// What a mesh splits; zeros where the model is not there, or is wrong in ways that are told already.
ModelSizes model_sizes(const ModelConfig& model);

/// All but the mesh.
void check_run_config(const RunConfig& config, const Report& report);
/// `world`: ranks of the launch, 0 when not known. Fills parallel.mesh.data.
void check_run_mesh(RunConfig& config, int world, const Report& report);

}  // namespace bdlm
