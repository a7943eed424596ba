// SPDX-License-Identifier: Apache-2.0
// What must hold between the sizes of a mixture of experts.
#include <cmath>

#include "kernels/error.h"
#include "model/families_table.h"

namespace bdlm {
namespace {

class Sentences {
 public:
  template <class... Args>
  bool unless(bool condition, fmt::format_string<Args...> text, Args&&... args) {
    if (!condition) lines_.push_back(fmt::format(text, std::forward<Args>(args)...));
    return condition;
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

std::string divisors(std::int64_t n) {
  std::vector<std::int64_t> out;
  for (std::int64_t i = 1; i <= n / 2; ++i)
    if (n % i == 0) out.push_back(i);
  return fmt::format("{}", fmt::join(out, ", "));
}

void check_groups(const ModelConfig& c, Sentences& out) {
  const bool positive =
      out.unless(c.n_group > 0, "model.n_group is {}, it must be 1 or more", c.n_group);
  if (!positive) return;
  if (!out.unless(c.num_experts % c.n_group == 0,
                  "model.n_group {} does not divide model.num_experts {}: these do: {}", c.n_group,
                  c.num_experts, divisors(c.num_experts)))
    return;
  const std::int64_t size = c.num_experts / c.n_group;
  out.unless(c.n_group == 1 || size >= 2,
             "model.n_group {} makes groups of {} of the {} experts, but a group is judged by its "
             "two best: use fewer groups, or 1",
             c.n_group, size, c.num_experts);
  if (!out.unless(c.topk_group > 0 && c.topk_group <= c.n_group,
                  "model.topk_group is {}, it must be between 1 and model.n_group {}", c.topk_group,
                  c.n_group))
    return;
  out.unless(c.num_experts_per_tok <= c.topk_group * size ||
                 c.num_experts_per_tok > c.num_experts,  // which has a sentence of its own
             "model.num_experts_per_tok is {}, but model.topk_group {} of {} groups have only {} "
             "experts",
             c.num_experts_per_tok, c.topk_group, c.n_group, c.topk_group * size);
}

/// Fields that Qwen3's config.json has no word for.
void check_qwen3(const ModelConfig& c, Sentences& out) {
  const std::pair<const char*, bool> others[] = {
      {"num_shared_experts", c.num_shared_experts != 0},
      {"first_k_dense_replace", c.first_k_dense_replace != 0},
      {"n_group", c.n_group != 1},
      {"routed_scaling_factor", c.routed_scaling_factor != 1},
      {"moe_router_enable_expert_bias", c.router_bias},
  };
  for (const auto& [name, given] : others) {
    out.unless(!given,
               "model.{} is not for model.model_type {}, whose router has no such part: use "
               "llada2_moe",
               name, c.family);
  }
}

}  // namespace

std::vector<std::string> mixture_findings(const ModelConfig& c) {
  Sentences out;
  const Family& family = family_of(c.family, "model.model_type");
  if (family.mixture == Mixture::none) {
    out.unless(c.num_experts == 0,
               "model.num_experts is {}, but model.model_type {} has no experts: use qwen3_moe, "
               "sdar_moe or llada2_moe",
               c.num_experts, c.family);
    out.unless(!c.freeze_router,
               "model.freeze_router is true, but model.model_type {} has no router", c.family);
    return out.take();
  }
  if (!out.unless(c.num_experts > 0,
                  "model.num_experts is {}, it must be 1 or more with model.model_type {}",
                  c.num_experts, c.family))
    return out.take();
  out.unless(c.num_experts_per_tok > 0, "model.num_experts_per_tok is {}, it must be 1 or more",
             c.num_experts_per_tok);
  out.unless(c.num_experts_per_tok <= c.num_experts,
             "model.num_experts_per_tok is {}, more than model.num_experts {}",
             c.num_experts_per_tok, c.num_experts);
  out.unless(c.moe_intermediate_size > 0, "model.moe_intermediate_size is {}, it must be 1 or more",
             c.moe_intermediate_size);
  out.unless(c.num_shared_experts >= 0, "model.num_shared_experts is {}, it must be 0 or more",
             c.num_shared_experts);
  out.unless(c.first_k_dense_replace >= 0 && c.first_k_dense_replace <= c.num_hidden_layers,
             "model.first_k_dense_replace is {}, it must be between 0 and num_hidden_layers {}",
             c.first_k_dense_replace, c.num_hidden_layers);
  out.unless(std::isfinite(c.routed_scaling_factor) && c.routed_scaling_factor > 0,
             "model.routed_scaling_factor is {}, it must be above 0", c.routed_scaling_factor);
  if (family.mixture == Mixture::qwen3) {
    check_qwen3(c, out);
  } else {
    check_groups(c, out);
  }
  return out.take();
}

}  // namespace bdlm
