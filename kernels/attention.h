// SPDX-License-Identifier: Apache-2.0
// Interval attention: the one attention kernel of block diffusion. Every query row reads one
// interval of each key source; causal, block-causal, document, window and shard masks are all
// intervals (docs/csbp.md).
#pragma once

#include <cstdint>

#include "kernels/interval.h"
#include "kernels/tensor.h"

namespace bdlm {

/// What a backend keeps beside a list of intervals for its kernels; see Device::upload_intervals.
class IntervalNotes {
 public:
  virtual ~IntervalNotes() = default;
};

struct AttentionShape {
  std::int64_t heads = 0;     // query heads
  std::int64_t kv_heads = 0;  // divides heads; query head h reads key head h / (heads / kv_heads)
  std::int64_t head_dim = 0;
  double scale = 0;  // of the scores, usually 1 / sqrt(head_dim)
};

/// Keys and values from the first to the last that any row sees must be finite: work goes by tiles,
/// where a key that a row does not see is multiplied by 0.
struct KeySource {
  Tensor key, value;                  // [keys, kv_heads * head_dim], compute dtype, any row stride
  const Interval* visible = nullptr;  // one for each query row, in device memory
  IntervalNotes* notes = nullptr;     // of the same list; a device with memory of its own needs them
};

}  // namespace bdlm
