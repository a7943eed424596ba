// SPDX-License-Identifier: Apache-2.0
// Reader sets as levels: layer l reads level l and computes level l + 1. Levels only shrink towards
// the top and most are equal, so that each distinct set is stored once.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/visibility.h"

namespace bdlm {

using RowSet = std::vector<std::uint8_t>;  // a flag for each row id

struct Levels {
  std::vector<RowSet> sets;  // distinct, largest last
  std::vector<int> index;    // [layers + 1] into sets

  const RowSet& at(std::size_t level) const { return sets[static_cast<std::size_t>(index[level])]; }
  std::size_t layers() const { return index.size() - 1; }
};

/// What is computed so that the rows of `head` come out of the last layer. `forced` rows are in
/// every layer's input whether they have a reader or not (what an elision switch off means).
Levels make_levels(const Layout& layout, std::span<const std::int64_t> windows, RowSet head,
                   const RowSet& forced, bool elide_last_layer);

/// Rows with a target, as a set of ones and zeros.
RowSet predicting_rows(const BatchShape& batch);

/// Rows that `elide` keeps in every layer's input.
RowSet forced_rows(const Layout& layout, const Elide& elide);

}  // namespace bdlm
