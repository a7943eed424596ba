// SPDX-License-Identifier: Apache-2.0
#include "parallel/plan_balance.h"

#include <numeric>

#include "kernels/error.h"

namespace bdlm {

Balance make_balance(const BatchShape& batch, const Layout& layout,
                     std::span<const std::int64_t> windows, const RowSet& predicts) {
  Balance balance;
  balance.levels = make_levels(layout, windows, predicts, forced_rows(layout, {}), true);
  balance.packed_rows = static_cast<std::int64_t>(batch.packed.size());
  require(std::accumulate(batch.packed.begin(), batch.packed.end(), std::int64_t{0}) ==
              layout.tokens,
          "packed rows that do not add up to the {} tokens of a pass", layout.tokens);
  for (std::size_t r = 0; r < batch.packed.size(); ++r)
    balance.packed.insert(balance.packed.end(), static_cast<std::size_t>(batch.packed[r]),
                          static_cast<std::int32_t>(r));
  for (const RowSet& set : balance.levels.sets) {
    std::vector<std::int64_t>& rows =
        balance.readers.emplace_back(batch.packed.size(), std::int64_t{0});
    for (std::size_t row = 0; row < set.size(); ++row)
      if (set[row])
        ++rows[static_cast<std::size_t>(balance.packed[row % balance.packed.size()])];
  }
  return balance;
}

CountedRows counted_rows(const Balance& balance, const std::vector<Levels>& before) {
  CountedRows counted;
  for (std::size_t layer = 0; layer < balance.levels.layers(); ++layer) {
    RowSet rows = balance.levels.at(layer + 1);
    for (const Levels& levels : before) {
      const RowSet& taken = levels.at(layer + 1);
      for (std::size_t row = 0; row < rows.size(); ++row) rows[row] &= !taken[row];
    }
    // The same rows may count here in layers with other readers elsewhere.
    const bool alike = layer > 0 && counted.sets.back() == rows &&
                       balance.levels.index[layer] == balance.levels.index[layer + 1];
    if (!alike) counted.sets.push_back(std::move(rows));
    counted.index.push_back(static_cast<int>(counted.sets.size()) - 1);
  }
  return counted;
}

void count_in(LayerPlan& plan, const Balance& balance, const CountedRows& counted,
              std::size_t layer) {
  const RowSet& counts = counted.sets[static_cast<std::size_t>(counted.index[layer])];
  plan.packed.reserve(plan.out.size());
  for (const std::int32_t place : plan.out) {
    const auto row = static_cast<std::size_t>(plan.in[static_cast<std::size_t>(place)]);
    plan.packed.push_back(counts[row] ? balance.packed[row % balance.packed.size()] : -1);
  }
  plan.readers =
      balance.readers[static_cast<std::size_t>(balance.levels.index[layer + 1])];
}

}  // namespace bdlm
