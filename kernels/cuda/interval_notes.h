// SPDX-License-Identifier: Apache-2.0
// What the backend keeps beside an interval list: the host's copy and, made when first needed, the
// tile schedules of it in device memory. A list serves all layers that are alike.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/attention_ops.h"
#include "kernels/device.h"

namespace bdlm::cuda {

class IntervalSchedules final : public IntervalNotes {
 public:
  IntervalSchedules(Device& device, std::span<const Interval> rows, std::int64_t keys)
      : device_(device), rows_(rows.begin(), rows.end()), keys_(keys) {}

  std::int64_t rows() const { return static_cast<std::int64_t>(rows_.size()); }
  std::int64_t keys() const { return keys_; }
  TileList by_query(AttentionTiles tiles) { return find(tiles, false); }
  TileList by_key(AttentionTiles tiles) { return find(tiles, true); }

 private:
  struct Made {
    AttentionTiles tiles;
    bool by_key = false;
    DeviceList<std::int32_t> order, begin;
    DeviceList<TileRun> runs;
  };
  TileList find(AttentionTiles tiles, bool by_key);

  Device& device_;
  std::vector<Interval> rows_;
  std::int64_t keys_;
  std::vector<Made> made_;  // two or three
};

}  // namespace bdlm::cuda
