// SPDX-License-Identifier: Apache-2.0
// The deal: which rank of the csbp group owns which block.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/readers.h"

namespace bdlm {

/// What a block of the joined row (its clean and corrupted copies together) asks of its owner.
struct BlockLoad {
  std::int64_t cost = 0;  // in some unit; integers, so that every machine deals alike
  std::int64_t rows = 0;  // held: those of the first layer's input
};
std::vector<BlockLoad> block_loads(const Layout& layout, const Levels& levels,
                                   std::span<const std::int64_t> windows, const LayerShapes& model);

/// Rank of each block: costs within 2 % of their mean, rows within 25 %, in as few runs of
/// neighbouring blocks as that allows; where nothing meets both, the best that was found.
std::vector<std::int32_t> deal_balanced(std::span<const BlockLoad> blocks, int ranks);

/// Rank of each of `count` units (blocks or tokens) under the other deals, by place alone.
std::vector<std::int32_t> deal_head_tail(std::int64_t count, int ranks);
std::vector<std::int32_t> deal_contiguous(std::int64_t count, int ranks);

/// Owner of every row id that is computed, -1 for the others: deal_rows with what it is made from.
std::vector<std::int32_t> owners_of(const Layout& layout, const Levels& levels,
                                    std::span<const std::int64_t> windows, const LayerShapes& model,
                                    const PlanOptions& options, int ranks);

}  // namespace bdlm
