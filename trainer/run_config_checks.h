// SPDX-License-Identifier: Apache-2.0
// What the keys of a run file must be to each other.
#pragma once

#include <functional>
#include <string>

#include "trainer/run_config.h"

namespace bdlm {

/// Told of every finding: the key that the user would change, and a sentence that names the other.
using Report = std::function<void(const std::string& key, const std::string& sentence)>;

bool has_model(const RunConfig& config);

/// Of a mixture-of-experts layer; 0: the model has none.
std::int64_t experts_of(const ModelConfig& model);

/// `world`: ranks of the launch, 0 when not known. Fills parallel.mesh.data.
void check_run_config(RunConfig& config, int world, const Report& report);

}  // namespace bdlm
