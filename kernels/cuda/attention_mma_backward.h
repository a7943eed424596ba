// SPDX-License-Identifier: Apache-2.0
// The two halves of attention_backward_mma. Scores are made twice, once in each: so that no sum
// crosses blocks, and the result does not depend on the order of blocks.
#pragma once

#include "kernels/cuda/attention_ops.h"

namespace bdlm::cuda {

void attention_backward_query_mma(Stream stream, const AttentionBackward<bfloat16>& call);
void attention_backward_key_mma(Stream stream, const AttentionBackward<bfloat16>& call);

}  // namespace bdlm::cuda
