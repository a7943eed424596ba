// SPDX-License-Identifier: Apache-2.0
// Who sees whom, as intervals: the one place of the implementation that knows the mask of block
// diffusion. Everything about readers, shards and exchanges is computed from these intervals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "parallel/plan.h"

namespace bdlm {

/// Positions [begin, end) of the joined row, in the document that starts at `document`.
struct Block {
  std::int32_t begin = 0, end = 0, document = 0;
};

/// The joined row cut into documents and blocks; blocks never cross a document's end.
struct Layout {
  std::int64_t tokens = 0, views = 1;
  std::int64_t longest = 0;  // document
  bool causal_clean = false;
  std::vector<Block> blocks;
  std::vector<std::int32_t> block_of;  // [T]

  std::int64_t rows() const { return (1 + views) * tokens; }
  /// In the joined row. In 32 bits, for speed: this is asked for every row of every layer.
  std::int32_t position(std::int32_t row) const { return row % static_cast<std::int32_t>(tokens); }
  const Block& block(std::int64_t position) const {
    return blocks[static_cast<std::size_t>(block_of[static_cast<std::size_t>(position)])];
  }
};

/// Throws Error when the sizes do not fit each other or 32-bit row ids.
Layout make_layout(const BatchShape& batch);

/// Windows of all layers; one that no document outgrows is full attention (0), so that layers which
/// do not differ share a plan.
std::vector<std::int64_t> effective_windows(const Layout& layout, const LayerShapes& model);

/// What one row sees, in row ids: an interval of the clean copy and one of its own corrupted view.
/// Over the rows of a copy, ascending, all four bounds ascend.
struct Keys {
  Interval clean, own;
  std::int64_t count() const { return std::int64_t{clean.hi} - clean.lo + own.hi - own.lo; }
};

inline Keys visible_keys(const Layout& layout, std::int32_t row, std::int64_t window) {
  const std::int32_t position = layout.position(row);
  const Block& block = layout.block(position);
  // The window cuts the lower end only: keys ahead of the query in its own block stay.
  const std::int32_t near =
      window == 0 ? 0 : std::max(0, static_cast<std::int32_t>(position - window + 1));
  const auto cut = [near](std::int32_t lo, std::int32_t hi) {
    return Interval{std::min(std::max(lo, near), hi), hi};
  };
  if (row < layout.tokens) {
    return {cut(block.document, layout.causal_clean ? position + 1 : block.end), {}};
  }
  Keys keys{cut(block.document, block.begin), cut(block.begin, block.end)};
  keys.own.lo += row - position;
  keys.own.hi += row - position;
  return keys;
}

}  // namespace bdlm
