// SPDX-License-Identifier: Apache-2.0
// Deals blocks (csbp, bp) or positions (cp) to the ranks that share a packed row.
#include "parallel/deal.h"

#include <bit>
#include <cmath>

#include "kernels/error.h"

namespace bdlm {
namespace {

struct BlockWork {
  std::int64_t rows = 0, pairs = 0;  // computed, summed over layers
};

std::vector<BlockWork> block_work(const Layout& layout, const Levels& levels,
                                  std::span<const std::int64_t> windows) {
  std::vector<BlockWork> work(layout.blocks.size());
  std::vector<bool> counted(windows.size());
  for (std::size_t layer = 0; layer < windows.size(); ++layer) {
    if (counted[layer]) continue;
    std::int64_t alike = 0;  // layers with the same rows and window
    for (std::size_t other = layer; other < windows.size(); ++other) {
      if (levels.index[other + 1] != levels.index[layer + 1]) break;  // levels only shrink
      if (windows[other] != windows[layer]) continue;
      counted[other] = true;
      ++alike;
    }
    const RowSet& out = levels.at(layer + 1);
    for (std::size_t row = 0; row < out.size(); ++row) {
      if (!out[row]) continue;
      const auto id = static_cast<std::int32_t>(row);
      BlockWork& block = work[static_cast<std::size_t>(
          layout.block_of[static_cast<std::size_t>(layout.position(id))])];
      block.rows += alike;
      block.pairs += alike * visible_keys(layout, id, windows[layer]).count();
    }
  }
  return work;
}

/// Power of two that brings the cost of everything below 2^39 and its product with the number of
/// rows below 2^61: the balance forms such products of integers.
int scale_of(const LayerShapes& model, const BlockWork& all, std::int64_t rows) {
  require(model.row_cost >= 0 && model.pair_cost >= 0,
          "costs of a row ({}) and a pair ({}) cannot be negative", model.row_cost,
          model.pair_cost);
  const auto bits = [](std::int64_t count) {
    return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count)));
  };
  const auto product_bits = [&](double cost, std::int64_t count) {
    int exponent = 0;
    std::frexp(cost, &exponent);
    return exponent + bits(count);
  };
  return std::min(38, 59 - bits(rows)) -
         std::max(product_bits(model.row_cost, all.rows), product_bits(model.pair_cost, all.pairs));
}

/// Chunk c of `chunks` holds [c * count / chunks, (c + 1) * count / chunks): ragged, as even as can
/// be. `owner` maps a chunk to a rank.
template <class Owner>
std::vector<std::int32_t> deal_chunks(std::int64_t count, std::int64_t chunks, Owner owner) {
  std::vector<std::int32_t> ranks(static_cast<std::size_t>(count));
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
    std::fill(ranks.begin() + chunk * count / chunks, ranks.begin() + (chunk + 1) * count / chunks,
              static_cast<std::int32_t>(owner(chunk)));
  }
  return ranks;
}

std::vector<std::int32_t> deal_round_robin(std::int64_t count, int ranks) {
  std::vector<std::int32_t> dealt(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < dealt.size(); ++i) {
    dealt[i] = static_cast<std::int32_t>(i % static_cast<std::size_t>(ranks));
  }
  return dealt;
}

}  // namespace

std::vector<BlockLoad> block_loads(const Layout& layout, const Levels& levels,
                                   std::span<const std::int64_t> windows,
                                   const LayerShapes& model) {
  const std::vector<BlockWork> work = block_work(layout, levels, windows);
  BlockWork all;
  for (const BlockWork& block : work) {
    all.rows += block.rows;
    all.pairs += block.pairs;
  }
  const int scale = scale_of(model, all, layout.rows());
  const double row_cost = std::ldexp(model.row_cost, scale);
  const double pair_cost = std::ldexp(model.pair_cost, scale);
  std::vector<BlockLoad> loads(work.size());
  for (std::size_t i = 0; i < work.size(); ++i) {  // rounded apart: no fused multiply-add
    loads[i].cost = std::llround(static_cast<double>(work[i].rows) * row_cost) +
                    std::llround(static_cast<double>(work[i].pairs) * pair_cost);
  }
  const RowSet& held = levels.at(0);
  for (std::size_t row = 0; row < held.size(); ++row) {
    if (!held[row]) continue;
    const auto position = static_cast<std::size_t>(layout.position(static_cast<std::int32_t>(row)));
    ++loads[static_cast<std::size_t>(layout.block_of[position])].rows;
  }
  return loads;
}

std::vector<std::int32_t> deal_head_tail(std::int64_t count, int ranks) {
  return deal_chunks(count, 2 * ranks, [ranks](std::int64_t chunk) {
    return std::min<std::int64_t>(chunk, 2 * ranks - 1 - chunk);
  });
}

std::vector<std::int32_t> deal_contiguous(std::int64_t count, int ranks) {
  return deal_chunks(count, ranks, [](std::int64_t chunk) { return chunk; });
}

std::vector<std::int32_t> owners_of(const Layout& layout, const Levels& levels,
                                    std::span<const std::int64_t> windows, const LayerShapes& model,
                                    const PlanOptions& options, int ranks) {
  require(ranks > 0, "a plan needs at least one rank, not {}", ranks);
  // cp cuts positions, not blocks. Its balanced deal is head_tail: costs of blocks do not apply.
  const bool by_token = options.sharding == Sharding::cp && options.deal != DealKind::round_robin;
  const auto units = by_token ? layout.tokens : static_cast<std::int64_t>(layout.blocks.size());
  std::vector<std::int32_t> dealt;
  switch (options.deal) {
    case DealKind::balanced:
      dealt = by_token ? deal_head_tail(units, ranks)
                       : deal_balanced(block_loads(layout, levels, windows, model), ranks);
      break;
    case DealKind::head_tail:
      dealt = deal_head_tail(units, ranks);
      break;
    case DealKind::contiguous:
      dealt = deal_contiguous(units, ranks);
      break;
    case DealKind::round_robin:
      dealt = deal_round_robin(units, ranks);
      break;
  }
  const RowSet& computed = levels.at(0);
  std::vector<std::int32_t> owner(computed.size(), -1);
  for (std::size_t row = 0; row < owner.size(); ++row) {
    if (!computed[row]) continue;
    const auto position = static_cast<std::size_t>(layout.position(static_cast<std::int32_t>(row)));
    owner[row] = dealt[by_token ? position : static_cast<std::size_t>(layout.block_of[position])];
  }
  return owner;
}

std::vector<std::int32_t> deal_rows(const BatchShape& batch, const LayerShapes& model,
                                    const PlanOptions& options, int ranks) {
  const Layout layout = make_layout(batch);
  const std::vector<std::int64_t> windows = effective_windows(layout, model);
  const Levels levels = make_levels(layout, windows, predicting_rows(batch),
                                    forced_rows(layout, options.elide), options.elide.last_layer);
  return owners_of(layout, levels, windows, model, options, ranks);
}

}  // namespace bdlm
