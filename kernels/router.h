// SPDX-License-Identifier: Apache-2.0
// How a mixture's router turns a row's scores into experts and their weights.
#pragma once

#include <cstdint>

namespace bdlm {

/// Qwen3-MoE: softmax over all, the k most probable, weights divided by their sum.
/// LLaDA2 (inclusionAI, modeling_llada2_moe.py): sigmoid; a bias is added for the choice only; of
/// `groups` equal groups the `best_groups` with the largest sum of their two best choices take part;
/// weights divided by their sum + 1e-20, times `scaling`.
struct Router {
  std::int64_t experts = 0;  // E
  std::int64_t chosen = 0;   // k, at most E / groups * best_groups
  bool sigmoid = false;      // else softmax
  std::int64_t groups = 1, best_groups = 1;  // groups > 1: of 2 experts or more
  bool normalize = true;
  double scaling = 1;
};

}  // namespace bdlm
