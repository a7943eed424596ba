// SPDX-License-Identifier: Apache-2.0
// Which boxes of which tensors a rank's share of the state consists of.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "trainer/boxes.h"

namespace bdlm {

struct StoredPiece {
  Box box;                 // of the logical tensor
  std::int64_t first = 0;  // its first element's place in the share
};

/// A tensor's part of the share, never empty. Because parts ascend, its pieces follow one another
/// in the share: boxes and values of one tensor are one contiguous run of memory.
struct TensorPieces {
  const Parameter* tensor = nullptr;  // of the layout
  std::vector<StoredPiece> pieces;
  std::int64_t first() const { return pieces.front().first; }
  std::int64_t count() const {
    return pieces.back().first + pieces.back().box.size() - pieces.front().first;
  }
};

/// By tensor, in the layout's order. The parts must ascend; gaps between tensors belong to nobody.
std::vector<TensorPieces> pieces_of(const ParameterLayout& layout,
                                    const std::vector<FlatRange>& parts);

}  // namespace bdlm
