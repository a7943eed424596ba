// SPDX-License-Identifier: Apache-2.0
// A block's way through its schedule. The loading thread and the computing warps walk it alike.
#pragma once

#include "kernels/cuda/attention_schedule.h"
#include "kernels/cuda/platform.cuh"

namespace bdlm::cuda {

/// The tiles that `own` meets in one list after another. After next(): `tile` of `source`, and
/// whether scores in it need the mask.
class TileWalk {
 public:
  int source = -1, tile = 0, masked = 0;

  CU_INLINE TileWalk(const TileList* lists, int count, int own)
      : lists_(lists), count_(count), own_(own) {}
  CU_INLINE bool next() {
    if (++tile < last_) return true;
    while (run_ == end_) {
      if (++source >= count_) return false;
      if (lists_[source].begin == nullptr) continue;  // a source without keys needs no schedule
      run_ = lists_[source].begin[own_];
      end_ = lists_[source].begin[own_ + 1];
    }
    const TileRun run = lists_[source].runs[run_++];
    tile = run.first;
    last_ = run.last;
    masked = run.masked;
    return true;
  }

 private:
  const TileList* lists_;
  int count_, own_, run_ = 0, end_ = 0, last_ = 0;
};

/// Block `index` of a launch: tiles with most work first.
CU_INLINE int ordered_tile(const TileList& list, int index) {
  return list.order == nullptr ? index : list.order[index];
}

}  // namespace bdlm::cuda
