// SPDX-License-Identifier: Apache-2.0
// A ModelConfig as the family's own config.json.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "model/families.h"
#include "model/families_table.h"

namespace bdlm {
namespace {

using nlohmann::json;

/// Empty for plain rotary embedding without a temperature.
json scaling_of(const RopeScaling& s) {
  json out = json::object();
  if (s.type == RopeType::plain && s.llama_4_scaling_beta == 0) return out;
  // Other readers want a whole number here.
  out["original_max_position_embeddings"] = std::llround(s.original_max_position_embeddings);
  if (s.llama_4_scaling_beta > 0) out["llama_4_scaling_beta"] = s.llama_4_scaling_beta;
  if (s.type == RopeType::plain) return out;
  out["factor"] = s.factor;
  if (s.type == RopeType::llama3) {
    out["low_freq_factor"] = s.low_freq_factor;
    out["high_freq_factor"] = s.high_freq_factor;
    return out;
  }
  out["beta_fast"] = s.beta_fast;
  out["beta_slow"] = s.beta_slow;
  if (s.mscale > 0) out["mscale"] = s.mscale;
  if (s.mscale_all_dim > 0) out["mscale_all_dim"] = s.mscale_all_dim;
  return out;
}

const char* name_of(RopeType type) {
  return type == RopeType::yarn ? "yarn" : type == RopeType::llama3 ? "llama3" : "default";
}

void write_rope(const ModelConfig& config, const Family& family, json& out) {
  const RopeFields fields = family.rope;
  json scaling = scaling_of(config.rope_scaling);
  if (fields == RopeFields::together || !scaling.empty()) {
    scaling["rope_type"] = name_of(config.rope_scaling.type);
  }
  if (fields == RopeFields::together) {
    scaling["rope_theta"] = config.rope_theta;
    out["rope_parameters"] = std::move(scaling);
  } else {
    out["rope_theta"] = config.rope_theta;
    if (!scaling.empty()) out["rope_scaling"] = std::move(scaling);
  }
  if (config.partial_rotary_factor != family.default_partial_rotary) {
    out["partial_rotary_factor"] = config.partial_rotary_factor;
  }
}

void write_windows(const ModelConfig& config, const Family& family, json& out) {
  const auto windows = config.windows();
  const bool slides = std::ranges::any_of(windows, [](std::int64_t w) { return w > 0; });
  if (family.window_switch) out["use_sliding_window"] = slides;
  if (!slides) return;
  out["sliding_window"] = config.sliding_window;
  out["layer_types"] = config.layer_types;
}

void write_mixture(const ModelConfig& config, Mixture kind, json& out) {
  if (kind == Mixture::none) return;
  out["num_experts"] = config.num_experts;
  out["num_experts_per_tok"] = config.num_experts_per_tok;
  out["moe_intermediate_size"] = config.moe_intermediate_size;
  out["norm_topk_prob"] = config.norm_topk_prob;
  if (kind == Mixture::qwen3) {
    out["decoder_sparse_step"] = 1;
    out["mlp_only_layers"] = json::array();
    return;
  }
  out["score_function"] = "sigmoid";
  out["use_bias"] = false;
  out["moe_router_enable_expert_bias"] = config.router_bias;
  out["first_k_dense_replace"] = config.first_k_dense_replace;
  out["n_group"] = config.n_group;
  out["topk_group"] = config.topk_group;
  out["routed_scaling_factor"] = config.routed_scaling_factor;
  out["num_shared_experts"] = config.num_shared_experts;
}

}  // namespace

json hf_config(const ModelConfig& config) {
  const Family& family = family_of(config.family, "model.family");
  require(config.qk_norm == family.qk_norm || family.qk_norm_key != nullptr,
          "model.qk_norm {} cannot be written: in the config.json of family '{}' it is always {}",
          config.qk_norm, family.name, family.qk_norm);
  require(config.attention_bias || family.bias != QkvBias::always,
          "model.attention_bias false cannot be written: in the config.json of family '{}' it is "
          "always true",
          family.name);

  json out = {
      {"architectures", {family.architecture}},
      {"model_type", family.name},
      {"hidden_act", "silu"},
      {"vocab_size", config.vocab_size},
      {"hidden_size", config.hidden_size},
      {"intermediate_size", config.intermediate_size},
      {"num_hidden_layers", config.num_hidden_layers},
      {"num_attention_heads", config.num_attention_heads},
      {"num_key_value_heads", config.num_key_value_heads},
      {"head_dim", config.head_dim},
      {"rms_norm_eps", config.rms_norm_eps},
      {"initializer_range", config.initializer_range},
      {"tie_word_embeddings", config.tie_word_embeddings},
  };
  if (family.bias == QkvBias::by_key) out[family.bias_key] = config.attention_bias;
  if (family.qk_norm_key != nullptr) out[family.qk_norm_key] = config.qk_norm;
  if (config.max_position_embeddings > 0) {
    out["max_position_embeddings"] = config.max_position_embeddings;
  }
  if (config.mask_token_id) out["mask_token_id"] = *config.mask_token_id;
  write_mixture(config, family.mixture, out);
  write_rope(config, family, out);
  write_windows(config, family, out);
  return out;
}

}  // namespace bdlm
