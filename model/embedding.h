// SPDX-License-Identifier: Apache-2.0
// Token ids -> rows of the residual stream, and back. A tensor group shares out the vocabulary and
// the rows: a rank looks up the tokens of its part of the vocabulary and sends each row to the rank
// that holds it. Ids are known everywhere, so nothing but rows travels, and none that is not needed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/layer_context.h"

namespace bdlm {

/// Who looks up what for whom. Pure, so that plans can count it.
struct EmbeddingPlan {
  std::vector<std::int32_t> lookup;  // rows of this rank's table, by the rank that gets them
  std::vector<std::int64_t> sends, receives;  // rows, by rank of the tensor group
  std::vector<std::int32_t> order;   // row i here is the order[i]-th that arrives
};
/// ids of all rows. Rank t's vocabulary is share_of(vocabulary, t, ranks).
EmbeddingPlan plan_embedding(std::span<const std::int32_t> ids, std::int64_t vocabulary, int rank,
                             int ranks);

/// table [V', D] -> this rank's share of the rows, [share, D]. Collective over the tensor group.
Buffer embedding_forward(const LayerContext& c, const EmbeddingPlan& plan, Tensor table);
/// dy [share, D] -> dtable (+=).
void embedding_backward(const LayerContext& c, const EmbeddingPlan& plan, Tensor dy, Tensor dtable);

}  // namespace bdlm
