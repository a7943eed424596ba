// SPDX-License-Identifier: Apache-2.0
// How a mixture's router turns a row's scores into experts and their weights.
#pragma once

#include <cstdint>

namespace bdlm {

/// Qwen3-MoE: softmax over all, the k most probable, weights divided by their sum.
/// LLaDA2 (inclusionAI, modeling_llada2_moe.py): sigmoid; a bias is added for the choice only; of
/// `groups` equal groups those `best_groups` take part whose two best choices have the largest sum;
/// weights divided by their sum, times `scaling`.
/// For both: sum + 1e-20 is what divides; of equal choices or groups the first is taken; a choice
/// that is no number counts as -infinity.
struct Router {
  std::int64_t experts = 0;  // E, at most 1024
  std::int64_t chosen = 0;   // k, at most E / groups * best_groups
  bool sigmoid = false;      // else softmax
  std::int64_t groups = 1, best_groups = 1;  // groups > 1: of 2 experts or more
  bool normalize = true;
  double scaling = 1;
};
inline constexpr std::int64_t most_experts = 1024;
inline constexpr double weight_floor = 1e-20;

}  // namespace bdlm
