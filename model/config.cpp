// SPDX-License-Identifier: Apache-2.0
// What must hold between a decoder's sizes. Everything that is wrong is told at once.
#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "kernels/error.h"
#include "model/families_table.h"

namespace bdlm {
namespace {

constexpr std::string_view full = "full_attention", sliding = "sliding_attention";

class Findings {
 public:
  template <class... Args>
  void unless(bool condition, fmt::format_string<Args...> text, Args&&... args) {
    if (condition) return;
    std::string line = fmt::format(text, std::forward<Args>(args)...);
    if (std::ranges::find(lines_, line) == lines_.end()) lines_.push_back(std::move(line));
  }
  void raise() const {
    if (!lines_.empty()) throw Error(fmt::format("{}", fmt::join(lines_, "\n")));
  }

 private:
  std::vector<std::string> lines_;  // each once: layers tend to share their mistake
};

bool positive(double value) { return std::isfinite(value) && value > 0; }

void check_sizes(const ModelConfig& c, Findings& findings) {
  const std::pair<const char*, std::int64_t> sizes[] = {
      {"vocab_size", c.vocab_size},
      {"hidden_size", c.hidden_size},
      {"intermediate_size", c.intermediate_size},
      {"num_hidden_layers", c.num_hidden_layers},
      {"num_attention_heads", c.num_attention_heads},
      {"num_key_value_heads", c.num_key_value_heads},
  };
  for (const auto& [name, value] : sizes) {
    findings.unless(value > 0, "model.{} is {}, it must be 1 or more", name, value);
  }
  // Token ids are 32-bit numbers in rows and token files.
  findings.unless(c.vocab_size <= INT32_MAX, "model.vocab_size is {}, at most {} is possible",
                  c.vocab_size, INT32_MAX);
  findings.unless(c.head_dim >= 0, "model.head_dim is {}, give a positive number or leave it out",
                  c.head_dim);
  if (c.num_attention_heads > 0 && c.num_key_value_heads > 0) {
    findings.unless(c.num_attention_heads % c.num_key_value_heads == 0,
                    "model.num_attention_heads {} is not a multiple of num_key_value_heads {}",
                    c.num_attention_heads, c.num_key_value_heads);
  }
  if (c.head_dim == 0 && c.num_attention_heads > 0) {
    findings.unless(c.hidden_size % c.num_attention_heads == 0,
                    "model.hidden_size {} does not divide by num_attention_heads {}: give head_dim",
                    c.hidden_size, c.num_attention_heads);
  }
  findings.unless(positive(c.rms_norm_eps), "model.rms_norm_eps is {}, it must be above 0",
                  c.rms_norm_eps);
  findings.unless(std::isfinite(c.initializer_range) && c.initializer_range >= 0,
                  "model.initializer_range is {}, it must be 0 or more", c.initializer_range);
  findings.unless(c.max_position_embeddings >= 0,
                  "model.max_position_embeddings is {}, it must be positive, or 0 for unknown",
                  c.max_position_embeddings);
  if (c.mask_token_id) {
    findings.unless(*c.mask_token_id >= 0 && *c.mask_token_id < c.vocab_size,
                    "model.mask_token_id is {}, outside the vocabulary of {} tokens",
                    *c.mask_token_id, c.vocab_size);
  }
}

void check_windows(const ModelConfig& c, Findings& findings) {
  findings.unless(c.sliding_window >= 0, "model.sliding_window is {}, it must be 0 or more tokens",
                  c.sliding_window);
  const auto layers = static_cast<std::int64_t>(c.layer_types.size());
  findings.unless(layers == 0 || layers == c.num_hidden_layers,
                  "model.layer_types has {} entries for num_hidden_layers {}", layers,
                  c.num_hidden_layers);
  bool slides = false;
  for (const std::string& type : c.layer_types) {
    slides |= type == sliding;
    findings.unless(type == full || type == sliding,
                    "model.layer_types has '{}', possible are {} and {}", type, full, sliding);
  }
  findings.unless(!slides || c.sliding_window != 0,
                  "model.layer_types has {} layers: give model.sliding_window (tokens)", sliding);
}

void check_rope(const ModelConfig& c, std::int64_t head_dim, Findings& findings) {
  findings.unless(positive(c.rope_theta), "model.rope_theta is {}, it must be above 0",
                  c.rope_theta);
  const double partial = c.partial_rotary_factor;
  const bool share = positive(partial) && partial <= 1;
  findings.unless(share, "model.partial_rotary_factor is {}, it must be above 0 and at most 1",
                  partial);
  if (share && head_dim > 0) {
    ModelConfig known = c;
    known.head_dim = head_dim;
    findings.unless(known.rotary_dim() >= 2 && known.rotary_dim() % 2 == 0,
                    "rotary embedding turns pairs of channels, but model.head_dim {} x "
                    "partial_rotary_factor {} gives {} channels",
                    head_dim, partial, known.rotary_dim());
  }

  const RopeScaling& s = c.rope_scaling;
  findings.unless(std::isfinite(s.llama_4_scaling_beta) && s.llama_4_scaling_beta >= 0,
                  "model.rope_scaling.llama_4_scaling_beta is {}, it must be 0 or more",
                  s.llama_4_scaling_beta);
  if (s.type == RopeType::plain && s.llama_4_scaling_beta == 0) return;
  findings.unless(positive(s.original_max_position_embeddings),
                  "model.rope_scaling.original_max_position_embeddings is {}, it must be above 0",
                  s.original_max_position_embeddings);
  if (s.type == RopeType::plain) return;
  findings.unless(std::isfinite(s.factor) && s.factor >= 1,
                  "model.rope_scaling.factor is {}, it must be 1 or more", s.factor);
  if (s.type == RopeType::llama3) {
    findings.unless(positive(s.low_freq_factor) && s.high_freq_factor > s.low_freq_factor,
                    "model.rope_scaling of llama3 needs 0 < low_freq_factor < high_freq_factor, "
                    "these are {} and {}",
                    s.low_freq_factor, s.high_freq_factor);
  } else {
    findings.unless(positive(s.beta_slow) && s.beta_fast >= s.beta_slow,
                    "model.rope_scaling of yarn needs 0 < beta_slow <= beta_fast, these are {} "
                    "and {}",
                    s.beta_slow, s.beta_fast);
    findings.unless(c.rope_theta > 1, "model.rope_theta is {}, yarn needs more than 1",
                    c.rope_theta);
    findings.unless(s.mscale >= 0 && s.mscale_all_dim >= 0,
                    "model.rope_scaling.mscale {} and mscale_all_dim {} must be 0 or more",
                    s.mscale, s.mscale_all_dim);
  }
}

}  // namespace

Router ModelConfig::router() const {
  return {.experts = num_experts,
          .chosen = num_experts_per_tok,
          .sigmoid = router_sigmoid,
          .groups = n_group,
          .best_groups = topk_group,
          .normalize = norm_topk_prob,
          .scaling = routed_scaling_factor};
}

std::vector<std::int64_t> ModelConfig::windows() const {
  std::vector<std::int64_t> out(
      static_cast<std::size_t>(std::max<std::int64_t>(num_hidden_layers, 0)));
  for (std::size_t layer = 0; layer < layer_types.size() && layer < out.size(); ++layer) {
    if (layer_types[layer] == sliding) out[layer] = sliding_window;
  }
  return out;
}

void complete(ModelConfig& config) {
  Findings findings;
  check_sizes(config, findings);
  std::int64_t head_dim = config.head_dim;
  if (head_dim == 0 && config.num_attention_heads > 0) {
    head_dim = config.hidden_size / config.num_attention_heads;
  }
  check_windows(config, findings);
  check_rope(config, head_dim, findings);
  for (const std::string& line : mixture_findings(config)) findings.unless(false, "{}", line);
  findings.raise();
  config.head_dim = head_dim;
}

}  // namespace bdlm
