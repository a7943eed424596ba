// SPDX-License-Identifier: Apache-2.0
#include "trainer/flops.h"

#include "model/layer_costs.h"

namespace bdlm {

double useful_flops(const StepPlan& plan, const ModelConfig& m) {
  const auto key_weights = static_cast<double>(m.hidden_size * m.kv_width());
  double weights_times_rows = 0;
  for (std::int64_t l = 0; l < plan.layers(); ++l) {
    const LayerPlan& layer = plan.at(l);
    weights_times_rows +=
        static_cast<double>(layer.out.size()) * (layer_weights(m, l) - key_weights) +
        static_cast<double>(layer.in.size()) * key_weights;
  }
  const WorkCounts work = count_work(plan);
  weights_times_rows += static_cast<double>(work.head_rows * m.hidden_size * m.vocab_size);
  return 6 * weights_times_rows +
         12 * static_cast<double>(work.pairs) * static_cast<double>(m.query_width());
}

}  // namespace bdlm
