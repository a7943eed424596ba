// SPDX-License-Identifier: Apache-2.0
// Flat parts against the tensors of the layout; both ascend, so one pass does.
#include "trainer/checkpoint_pieces.h"

#include <algorithm>

namespace bdlm {

std::vector<TensorPieces> pieces_of(const ParameterLayout& layout,
                                    const std::vector<FlatRange>& parts) {
  std::vector<TensorPieces> found;
  std::int64_t share = 0, end = 0;
  auto tensor = layout.tensors.begin();
  for (const FlatRange& part : parts) {
    if (part.count == 0) continue;
    require(part.begin >= end && part.count > 0 && part.begin + part.count <= layout.size,
            "part [{}, {}) of a share is out of order or outside of the {} parameters", part.begin,
            part.begin + part.count, layout.size);
    end = part.begin + part.count;
    while (tensor != layout.tensors.end() && tensor->offset + tensor->size() <= part.begin) {
      ++tensor;
    }
    for (auto t = tensor; t != layout.tensors.end() && t->offset < end; ++t) {
      const std::int64_t from = std::max(part.begin, t->offset);
      const std::int64_t count = std::min(end, t->offset + t->size()) - from;
      if (count <= 0) continue;
      if (found.empty() || found.back().tensor != &*t) found.push_back({&*t, {}});
      std::int64_t first = share + from - part.begin;
      for (Box box : boxes_of({from - t->offset, count}, t->cols)) {
        box.row += t->first_row;
        box.col += t->first_col;
        found.back().pieces.push_back({box, first});
        first += box.size();
      }
    }
    share += part.count;
  }
  return found;
}

}  // namespace bdlm
