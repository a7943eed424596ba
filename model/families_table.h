// SPDX-License-Identifier: Apache-2.0
// One row for each model_type: everything in which the families differ. Internal to families*.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace bdlm {

enum class QkvBias : std::uint8_t { by_key, always };         // by_key: attention_bias decides
enum class RopeFields : std::uint8_t { separate, together };  // together: object rope_parameters

struct Family {
  const char* name;          // config.json's model_type
  const char* architecture;  // first of its architectures
  const char* stem;          // of tensor names on disk, where the canonical ones have "model."
  const char* head;          // on disk, canonical "lm_head.weight"
  bool qk_norm = false;
  QkvBias bias = QkvBias::by_key;
  RopeFields rope = RopeFields::separate;
  bool window_switch = false;         // use_sliding_window and max_window_layers count
  std::int64_t default_head_dim = 0;  // where config.json does not say; 0: hidden / heads
  bool mixture = false;               // of experts: recognised, but refused for now
};

std::span<const Family> family_table();
/// Throws Error with the names that are possible; `where` begins the sentence.
const Family& family_of(const std::string& name, const std::string& where);

}  // namespace bdlm
