// SPDX-License-Identifier: Apache-2.0
// The table of model families and what they call their tensors.
#include "model/families.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "kernels/error.h"
#include "model/families_table.h"

namespace bdlm {
namespace {

constexpr Rename llada2_names[] = {{"embed_tokens", "word_embeddings"},
                                   {"self_attn", "attention"},
                                   {"o_proj", "dense"},
                                   {"q_norm", "query_layernorm"},
                                   {"k_norm", "key_layernorm"}};

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
    {.name = "sdar",
     .architecture = "SDARForCausalLM",
     .stem = "model.",
     .head = "lm_head.weight",
     .qk_norm = true,
     .window_switch = true,
     .default_head_dim = 128},
    {.name = "qwen3_moe",
     .architecture = "Qwen3MoeForCausalLM",
     .stem = "model.",
     .head = "lm_head.weight",
     .qk_norm = true,
     .window_switch = true,
     .mixture = Mixture::qwen3},
    {.name = "sdar_moe",
     .architecture = "SDARMoeForCausalLM",
     .stem = "model.",
     .head = "lm_head.weight",
     .qk_norm = true,
     .window_switch = true,
     .mixture = Mixture::qwen3},
    {.name = "llada2_moe",
     .architecture = "LLaDA2MoeModelLM",
     .stem = "model.",
     .head = "lm_head.weight",
     .renames = llada2_names,
     .fused_qkv = "query_key_value",
     .qk_norm = true,
     .qk_norm_key = "use_qk_norm",
     .bias_key = "use_qkv_bias",
     .window_switch = true,
     .default_partial_rotary = 0.5,
     .mixture = Mixture::llada2},
};

}  // namespace

std::span<const Family> family_table() { return table; }

const Family& family_of(const std::string& name, const std::string& where) {
  const auto row = std::ranges::find(table, std::string_view(name),
                                     [](const Family& f) { return std::string_view(f.name); });
  require(row != std::end(table), "{}: model type '{}' is not supported, possible are {}", where,
          name, fmt::join(family_names(), ", "));
  return *row;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family& family : table) names.emplace_back(family.name);
  return names;
}

bool family_is_dense(const std::string& family) {
  return family_of(family, "model.model_type").mixture == Mixture::none;
}

ModelConfig family_defaults(const std::string& family) {
  const Family& row = family_of(family, "model.family");
  ModelConfig config;
  config.family = family;
  config.attention_bias = row.bias == QkvBias::always;
  config.qk_norm = row.qk_norm;
  config.partial_rotary_factor = row.default_partial_rotary;
  if (row.mixture == Mixture::llada2) {
    config.router_sigmoid = config.router_bias = true;
    config.n_group = 8;
    config.topk_group = 4;
    config.routed_scaling_factor = 2.5;
  }
  return config;
}

namespace {

std::string disk_name(const Family& family, std::string name) {
  constexpr std::string_view stem = "model.";
  if (!name.starts_with(stem)) return family.head;
  name.replace(0, stem.size(), family.stem);
  for (const Rename& rename : family.renames) {
    const std::string_view part = rename.canonical;
    if (const std::size_t at = name.find(part); at != std::string::npos)
      name.replace(at, part.size(), rename.disk);
  }
  return name;
}

}  // namespace

DiskPlace place_on_disk(const ModelConfig& config, const std::string& canonical) {
  const Family& family = family_of(config.family, "model.family");
  if (family.fused_qkv == nullptr) return {disk_name(family, canonical), 0};
  const std::int64_t query = config.query_width(), key = config.kv_width() / 2;
  const std::pair<std::string_view, std::int64_t> fused[] = {
      {".self_attn.q_proj.", 0},
      {".self_attn.k_proj.", query},
      {".self_attn.v_proj.", query + key}};
  for (const auto& [part, first_row] : fused) {
    const std::size_t at = canonical.find(part);
    if (at == std::string::npos) continue;
    std::string name = canonical;
    name.replace(at, part.size(), fmt::format(".self_attn.{}.", family.fused_qkv));
    return {disk_name(family, name), first_row};
  }
  return {disk_name(family, canonical), 0};
}

std::vector<DiskTensor> disk_tensors(const ModelConfig& config, const ParameterLayout& layout) {
  std::vector<DiskTensor> out;
  std::unordered_map<std::string, std::size_t> places;
  out.reserve(layout.tensors.size());
  for (const Parameter& tensor : layout.tensors) {  // parts of one tensor in row order
    const DiskPlace place = place_on_disk(config, tensor.name);
    const auto [found, fresh] = places.emplace(place.name, out.size());
    if (fresh) out.push_back({place.name, {}});
    out[found->second].parts.push_back(tensor.name);
  }
  return out;
}

}  // namespace bdlm
