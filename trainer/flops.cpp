// SPDX-License-Identifier: Apache-2.0
#include "trainer/flops.h"

namespace bdlm {

double useful_flops(const StepPlan& plan, const ModelConfig& m) {
  const WorkCounts work = count_work(plan);
  const std::int64_t per_out =  // query, output, gate, up, down
      m.hidden_size * (2 * m.query_width() + 3 * m.intermediate_size);
  const std::int64_t per_in = m.hidden_size * m.kv_width();
  const std::int64_t per_head = m.hidden_size * m.vocab_size;
  const std::int64_t weights_times_rows =
      work.layer_rows * per_out + work.key_rows * per_in + work.head_rows * per_head;
  return 6.0 * static_cast<double>(weights_times_rows) +
         12.0 * static_cast<double>(work.pairs) * static_cast<double>(m.query_width());
}

}  // namespace bdlm
