// SPDX-License-Identifier: Apache-2.0
// Rows of the option table whose values are lists or have words of their own, and those of
// mixtures.
#pragma once

#include "trainer/options.h"

namespace bdlm::rows {

std::vector<Option> mixture_rows();
bool is_mixture_key(const std::string& key);
Option layer_types();
Option mask_token_id();
Option noise_range();
Option train_files();
Option elide();
Option recompute_mode();
Option resume();

}  // namespace bdlm::rows
