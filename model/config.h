// SPDX-License-Identifier: Apache-2.0
// The decoder's shape, with Hugging Face's field names. What families do differently is data here
// (flags, names), never a branch on a family in a layer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kernels/router.h"

namespace bdlm {

enum class RopeType : std::uint8_t { plain, llama3, yarn };

struct RopeScaling {
  RopeType type = RopeType::plain;
  double factor = 1;
  double original_max_position_embeddings = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  double mscale = 0, mscale_all_dim = 0;             // yarn: factor of cos and sin, see rotary
  double llama_4_scaling_beta = 0;  // > 0: the query's temperature grows with its position
};

struct ModelConfig {
  std::string family = "llama";  // row of the families table: tensor names, defaults
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_hidden_layers = 0;
  std::int64_t num_attention_heads = 0;
  std::int64_t num_key_value_heads = 0;
  std::int64_t head_dim = 0;  // 0: hidden_size / num_attention_heads
  double rms_norm_eps = 1e-6;
  double rope_theta = 1e4;
  double partial_rotary_factor = 1;
  RopeScaling rope_scaling;
  bool attention_bias = false;  // of q, k, v
  bool qk_norm = false;
  bool tie_word_embeddings = false;
  std::int64_t sliding_window = 0;       // tokens
  std::vector<std::string> layer_types;  // sliding_attention | full_attention; empty: all full
  double initializer_range = 0.02;
  std::int64_t max_position_embeddings = 0;   // 0: not stated; only a warning when exceeded
  std::optional<std::int64_t> mask_token_id;  // where the family's config names it

  // Mixture of experts; num_experts 0: every layer is dense.
  std::int64_t num_experts = 0;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t moe_intermediate_size = 0;  // of one expert
  std::int64_t num_shared_experts = 0;     // side by side: one MLP of that multiple of the width
  std::int64_t first_k_dense_replace = 0;  // leading layers with a dense MLP of intermediate_size
  bool router_sigmoid = false;             // else softmax
  bool router_bias = false;                // added for the choice only; moves by no gradient
  bool norm_topk_prob = true;              // the chosen experts' weights are divided by their sum
  std::int64_t n_group = 1, topk_group = 1;
  double routed_scaling_factor = 1;
  bool freeze_router = false;  // run file only: the router's weights are not trained

  bool sparse(std::int64_t layer) const {
    return num_experts > 0 && layer >= first_k_dense_replace;
  }
  Router router() const;
  std::int64_t shared_width() const { return num_shared_experts * moe_intermediate_size; }

  std::int64_t query_width() const { return num_attention_heads * head_dim; }
  std::int64_t kv_width() const { return 2 * num_key_value_heads * head_dim; }  // key and value
  std::int64_t rotary_dim() const {
    return static_cast<std::int64_t>(static_cast<double>(head_dim) * partial_rotary_factor);
  }
  /// Window of each layer in tokens; 0: full attention.
  std::vector<std::int64_t> windows() const;
};

/// Throws Error with one sentence for each thing that cannot work (sizes, heads, layer_types).
/// Fills head_dim.
void complete(ModelConfig& config);

}  // namespace bdlm
