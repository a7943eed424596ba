// SPDX-License-Identifier: Apache-2.0
// Which rows count in a mixture's balance term, and where (LayerPlan::packed and readers). The term is
// taken over the reader sets with everything elided, whatever is really computed, so that it does not
// depend on it; and each of their rows counts on one rank.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/readers.h"

namespace bdlm {

struct Balance {
  Levels levels;                          // everything elided
  std::vector<std::int32_t> packed;       // [T] packed row of every position
  std::int64_t packed_rows = 0;
  std::vector<std::vector<std::int64_t>> readers;  // of each distinct set: rows by packed row
};
Balance make_balance(const BatchShape& batch, const Layout& layout,
                     std::span<const std::int64_t> windows, const RowSet& predicts);

/// Rows that count on a rank that computes them, a set for every layer; most are the same, of layers
/// with the same readers.
struct CountedRows {
  std::vector<RowSet> sets;
  std::vector<int> index;  // [layers] into sets
};
/// before: what ranks that come first compute; their rows count there.
CountedRows counted_rows(const Balance& balance, const std::vector<Levels>& before);

/// Fills plan.packed and plan.readers.
void count_in(LayerPlan& plan, const Balance& balance, const CountedRows& counted,
              std::size_t layer);

}  // namespace bdlm
