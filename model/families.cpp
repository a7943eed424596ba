// SPDX-License-Identifier: Apache-2.0
// The table of model families and what they call their tensors.
#include "model/families.h"

#include <algorithm>
#include <string_view>

#include "kernels/error.h"
#include "model/families_table.h"

namespace bdlm {
namespace {

constexpr Family table[] = {
    {.name = "llama",
     .architecture = "LlamaForCausalLM",
     .stem = "model.",
     .head = "lm_head.weight"},
    {.name = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .stem = "model.",
     .head = "lm_head.weight",
     .bias = QkvBias::always,
     .window_switch = true},
    {.name = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .stem = "model.",
     .head = "lm_head.weight",
     .qk_norm = true,
     .window_switch = true,
     .default_head_dim = 128},
    {.name = "nemotron_labs_diffusion",
     .architecture = "NemotronLabsDiffusionModel",
     .stem = "encoder.",
     .head = "diffusion_head.weight",
     .rope = RopeFields::together,
     .default_head_dim = 128},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .stem = "model.",
     .head = "lm_head.weight",
     .qk_norm = true,
     .window_switch = true,
     .mixture = true},
    {.name = "llada2_moe",
     .architecture = "LLaDA2MoeModelLM",
     .stem = "model.",
     .head = "lm_head.weight",
     .qk_norm = true,
     .mixture = true},
};

}  // namespace

std::span<const Family> family_table() { return table; }

const Family& family_of(const std::string& name, const std::string& where) {
  const auto row = std::ranges::find(table, std::string_view(name),
                                     [](const Family& f) { return std::string_view(f.name); });
  require(row != std::end(table), "{}: model type '{}' is not supported, possible are {}", where,
          name, fmt::join(family_names(), ", "));
  require(!row->mixture,
          "{}: model type '{}' is not supported yet, mixture of experts comes with a later "
          "version; possible are {}",
          where, name, fmt::join(family_names(), ", "));
  return *row;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : table) {
    if (!family.mixture) names.emplace_back(family.name);
  }
  return names;
}

ModelConfig family_defaults(const std::string& family) {
  const Family& row = family_of(family, "model.family");
  ModelConfig config;
  config.family = family;
  config.attention_bias = row.bias == QkvBias::always;
  config.qk_norm = row.qk_norm;
  return config;
}

std::vector<DiskTensor> disk_tensors(const ModelConfig& config, const ParameterLayout& layout) {
  constexpr std::string_view stem = "model.";
  const Family& family = family_of(config.family, "model.family");
  std::vector<DiskTensor> out;
  out.reserve(layout.tensors.size());
  for (const Parameter& tensor : layout.tensors) {
    const bool inner = tensor.name.starts_with(stem);
    out.push_back(
        {inner ? family.stem + tensor.name.substr(stem.size()) : family.head, {tensor.name}});
  }
  return out;
}

}  // namespace bdlm
