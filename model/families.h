// SPDX-License-Identifier: Apache-2.0
// The table of model families: how a Hugging Face config.json is read and written, and what a
// family calls its tensors on disk.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/parameters.h"

namespace bdlm {

/// A tensor as it stands in a checkpoint file: one or, where the family fuses, several canonical
/// tensors one below the other (LLaDA2: query_key_value = [q; k; v]).
struct DiskTensor {
  std::string name;
  std::vector<std::string> parts;  // canonical names, in row order
};

std::vector<std::string> family_names();  // as model_type in config.json: "llama", "qwen3_moe" ...

bool family_is_dense(const std::string& family);  // no experts; Error for an unknown family

/// A config with the flags that every model of the family has (qkv bias, QK-norm, kind of router)
/// and no sizes:
/// what the inline fields of a run file start from. Throws Error for an unknown family.
ModelConfig family_defaults(const std::string& family);

/// From config.json. Throws Error naming the file and the field for a family or a feature that is
/// not supported. Fields that change nothing here are ignored.
ModelConfig read_hf_config(const std::string& folder);
/// The family's own config.json, complete enough that read_hf_config and other tools read it back.
nlohmann::json hf_config(const ModelConfig& config);

/// Where a canonical tensor stands on disk: whole, or as rows of a tensor that the family fuses.
struct DiskPlace {
  std::string name;
  std::int64_t first_row = 0;  // of the canonical tensor in it; elements for a vector
};
DiskPlace place_on_disk(const ModelConfig& config, const std::string& canonical);

/// The tensors of the layout as the family stores them. Of a rank's part of the model: those that
/// it has something of.
std::vector<DiskTensor> disk_tensors(const ModelConfig& config, const ParameterLayout& layout);

}  // namespace bdlm
