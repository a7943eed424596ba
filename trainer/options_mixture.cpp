// SPDX-License-Identifier: Apache-2.0
// Keys of mixtures of experts, with Hugging Face's names.
#include <algorithm>

#include "trainer/options_rows.h"
#include "trainer/options_special.h"

namespace bdlm::rows {

#define FIELD(member) \
  [](auto& config) -> auto& { return config.model.config.member; }

std::vector<Option> mixture_rows() {
  const Range any{.low = 0}, at_least_one{.low = 1};
  return {
      integer("model.num_experts", FIELD(num_experts), any, "experts",
              "of a mixture's layer; 0 for dense models"),
      integer("model.num_experts_per_tok", FIELD(num_experts_per_tok), any, "experts",
              "that a row is sent to"),
      integer("model.moe_intermediate_size", FIELD(moe_intermediate_size), any, "channels",
              "width of an expert's MLP"),
      boolean("model.norm_topk_prob", FIELD(norm_topk_prob),
              "the chosen experts' weights are divided by their sum"),
      boolean("model.freeze_router", FIELD(freeze_router), "the router's weights are not trained"),
      integer("model.num_shared_experts", FIELD(num_shared_experts), any, "experts",
              "llada2_moe: that every row passes, beside the chosen ones"),
      integer("model.first_k_dense_replace", FIELD(first_k_dense_replace), any, "layers",
              "llada2_moe: first layers that have a dense MLP"),
      boolean("model.moe_router_enable_expert_bias", FIELD(router_bias),
              "llada2_moe: a bias is added to the scores for the choice, and is not trained"),
      integer("model.n_group", FIELD(n_group), at_least_one, "groups",
              "llada2_moe: that the experts are cut into"),
      integer("model.topk_group", FIELD(topk_group), at_least_one, "groups",
              "llada2_moe: that experts are chosen from"),
      number("model.routed_scaling_factor", FIELD(routed_scaling_factor),
             {.low = 0, .open_low = true}, "", "llada2_moe: of the chosen experts' weights"),
  };
}

#undef FIELD

bool is_mixture_key(const std::string& key) {
  static const std::vector<Option> rows = mixture_rows();
  return std::ranges::find(rows, key, &Option::key) != rows.end();
}

}  // namespace bdlm::rows
