// SPDX-License-Identifier: Apache-2.0
// Cuts a joined row into documents and blocks.
#include "parallel/visibility.h"

#include <limits>

#include "kernels/error.h"

namespace bdlm {

Layout make_layout(const BatchShape& batch) {
  require(batch.block_size > 0, "objective.block_size is {}: it must be at least 1",
          batch.block_size);
  Layout layout;
  layout.views = batch.views;
  layout.causal_clean = batch.causal_clean;
  for (const std::int64_t length : batch.documents) {
    require(length >= 0, "a document has length {}: lengths cannot be negative", length);
    layout.tokens += length;
    layout.longest = std::max(layout.longest, length);
  }
  require(layout.rows() < std::numeric_limits<std::int32_t>::max(),
          "a micro-batch of {} tokens in {} copies has more than 2^31 rows: lower batch.micro_rows "
          "or data.row_tokens",
          layout.tokens, 1 + layout.views);
  require(static_cast<std::int64_t>(batch.predicts.size()) == layout.rows(),
          "the plan got target flags for {} rows, but the micro-batch has {}",
          batch.predicts.size(), layout.rows());

  layout.block_of.reserve(static_cast<std::size_t>(layout.tokens));
  std::int64_t document = 0;
  for (const std::int64_t length : batch.documents) {
    for (std::int64_t begin = 0; begin < length; begin += batch.block_size) {
      const std::int64_t end = std::min(length, begin + batch.block_size);
      layout.block_of.insert(layout.block_of.end(), static_cast<std::size_t>(end - begin),
                             static_cast<std::int32_t>(layout.blocks.size()));
      layout.blocks.push_back({static_cast<std::int32_t>(document + begin),
                               static_cast<std::int32_t>(document + end),
                               static_cast<std::int32_t>(document)});
    }
    document += length;
  }
  return layout;
}

std::vector<std::int64_t> effective_windows(const Layout& layout, const LayerShapes& model) {
  require(!model.windows.empty(), "a plan needs a model with at least one layer");
  std::vector<std::int64_t> windows = model.windows;
  for (std::int64_t& window : windows) {
    require(window >= 0, "a layer's window is {}: it must be 0 (full) or positive", window);
    if (window >= layout.longest) window = 0;
  }
  return windows;
}

}  // namespace bdlm
