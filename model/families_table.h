// SPDX-License-Identifier: Apache-2.0
// One row for each model_type: everything in which the families differ. Internal to families*.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"

namespace bdlm {

enum class QkvBias : std::uint8_t { by_key, always };         // by_key: bias_key decides
enum class RopeFields : std::uint8_t { separate, together };  // together: object rope_parameters

/// Fields of config.json about experts.
enum class Mixture : std::uint8_t { none, qwen3, llada2 };

/// A canonical name's part and what the family says instead.
struct Rename {
  const char* canonical;
  const char* disk;
};

struct Family {
  const char* name;          // config.json's model_type
  const char* architecture;  // first of its architectures
  const char* stem;          // of tensor names on disk, where the canonical ones have "model."
  const char* head;          // on disk, canonical "lm_head.weight"
  std::span<const Rename> renames = {};
  const char* fused_qkv = nullptr;  // [q; k; v] is one tensor, of this name instead of "q_proj"
  bool qk_norm = false;
  const char* qk_norm_key = nullptr;  // of config.json, where it is not always so
  const char* bias_key = "attention_bias";
  QkvBias bias = QkvBias::by_key;
  RopeFields rope = RopeFields::separate;
  bool window_switch = false;         // use_sliding_window and max_window_layers count
  std::int64_t default_head_dim = 0;  // where config.json does not say; 0: hidden / heads
  double default_partial_rotary = 1;
  Mixture mixture = Mixture::none;
};

std::span<const Family> family_table();
/// Throws Error with the names that are possible; `where` begins the sentence.
const Family& family_of(const std::string& name, const std::string& where);

/// Of complete(): what the model says of experts and its family cannot, and what cannot work. One
/// sentence each.
std::vector<std::string> mixture_findings(const ModelConfig& config);

}  // namespace bdlm
