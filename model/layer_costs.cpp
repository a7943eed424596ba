// SPDX-License-Identifier: Apache-2.0
#include "model/layer_costs.h"

#include <algorithm>

namespace bdlm {
namespace {

constexpr double per_weight = 6, per_channel = 12;

}  // namespace

double layer_weights(const ModelConfig& c, std::int64_t layer) {
  const std::int64_t attention = 2 * c.query_width() + c.kv_width();
  const std::int64_t mlp =
      c.sparse(layer)
          ? 3 * c.moe_intermediate_size * (c.num_experts_per_tok + c.num_shared_experts) +
                c.num_experts
          : 3 * c.intermediate_size;
  return static_cast<double>(c.hidden_size * (attention + mlp));
}

std::vector<double> layer_costs(const ModelConfig& c, double keys) {
  std::vector<double> costs;
  for (const std::int64_t window : c.windows()) {
    const double seen = window > 0 ? std::min(keys, static_cast<double>(window)) : keys;
    costs.push_back(per_weight * layer_weights(c, static_cast<std::int64_t>(costs.size())) +
                    per_channel * static_cast<double>(c.query_width()) * seen);
  }
  return costs;
}

double embedding_cost(const ModelConfig& c) {
  return per_weight * static_cast<double>(c.hidden_size);
}

double head_cost(const ModelConfig& c, double scored) {
  return per_weight * scored * static_cast<double>(c.hidden_size * c.vocab_size);
}

}  // namespace bdlm
