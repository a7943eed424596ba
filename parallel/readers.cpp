// SPDX-License-Identifier: Apache-2.0
// Which rows of which layer does anything read? Top down from the rows that predict: a layer below
// needs the rows of the layer above and every key that one of them sees.
#include "parallel/readers.h"

#include <algorithm>

namespace bdlm {
namespace {

/// `set` and every key that one of its rows sees. Intervals stay inside a copy, so that one
/// difference array over all row ids holds the cover of both kinds of keys.
RowSet with_keys(const Layout& layout, const RowSet& set, std::int64_t window) {
  std::vector<std::int32_t> change(set.size() + 1);
  const auto cover = [&change](Interval keys) {
    ++change[static_cast<std::size_t>(keys.lo)];
    --change[static_cast<std::size_t>(keys.hi)];
  };
  for (std::size_t row = 0; row < set.size(); ++row) {
    if (!set[row]) continue;
    const Keys keys = visible_keys(layout, static_cast<std::int32_t>(row), window);
    cover(keys.clean);
    cover(keys.own);
  }
  RowSet grown(set.size());
  std::int32_t readers = 0;
  for (std::size_t row = 0; row < set.size(); ++row) {
    readers += change[row];
    grown[row] = set[row] | (readers > 0);
  }
  return grown;
}

void unite(RowSet& set, const RowSet& other) {
  for (std::size_t row = 0; row < set.size(); ++row) set[row] |= other[row];
}

}  // namespace

RowSet predicting_rows(const BatchShape& batch) {
  RowSet rows(batch.predicts.begin(), batch.predicts.end());
  for (std::uint8_t& flag : rows) flag = flag != 0;
  return rows;
}

RowSet forced_rows(const Layout& layout, const Elide& elide) {
  RowSet forced(static_cast<std::size_t>(layout.rows()), !elide.unscored_blocks);
  std::fill_n(forced.begin(), layout.tokens, !elide.unreached_clean);
  return forced;
}

Levels make_levels(const Layout& layout, std::span<const std::int64_t> windows, RowSet head,
                   const RowSet& forced, bool elide_last_layer) {
  if (!elide_last_layer) {
    // The last layer computes all that it reads, so its set must be closed. A window of two or more
    // reaches the document's start token by token: its closure is that of full attention, which one
    // step closes; and so it does with a window of one, where rows see only themselves and ahead.
    unite(head, forced);
    head = with_keys(layout, head, windows.back() == 1 ? 1 : 0);
  }
  Levels levels;
  levels.sets.push_back(std::move(head));
  levels.index.assign(windows.size() + 1, 0);
  std::vector<std::int64_t> closed;  // windows under which the current set does not grow any more
  for (std::size_t layer = windows.size(); layer-- > 0;) {
    const std::int64_t window = windows[layer];
    if (std::find(closed.begin(), closed.end(), window) == closed.end()) {
      RowSet grown = with_keys(layout, levels.sets.back(), window);
      unite(grown, forced);
      if (grown == levels.sets.back()) {
        closed.push_back(window);
      } else {
        levels.sets.push_back(std::move(grown));
        closed.clear();
      }
    }
    levels.index[layer] = static_cast<int>(levels.sets.size()) - 1;
  }
  return levels;
}

std::vector<RowSet> reader_sets(const BatchShape& batch, const LayerShapes& model,
                                const Elide& elide) {
  const Layout layout = make_layout(batch);
  const Levels levels =
      make_levels(layout, effective_windows(layout, model), predicting_rows(batch),
                  forced_rows(layout, elide), elide.last_layer);
  std::vector<RowSet> sets;
  for (std::size_t layer = 0; layer < levels.layers(); ++layer) {
    sets.push_back(levels.at(layer + 1));
  }
  return sets;
}

}  // namespace bdlm
