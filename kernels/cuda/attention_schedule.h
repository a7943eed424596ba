// SPDX-License-Identifier: Apache-2.0
// Which tiles of keys a tile of query rows meets, and the transpose for the backward pass. Made on
// the host from the row intervals, once for each interval list and tile shape; the kernels walk it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/interval.h"

namespace bdlm::cuda {

/// Tiles [first, last) of the other side. masked: in each of them some row of the tile does not see
/// some key, or the tile reaches past the last key; else every row sees every key.
struct TileRun {
  std::int32_t first = 0, last = 0;
  std::int32_t masked = 0;
  bool operator==(const TileRun&) const = default;
};

/// For tile t the runs [begin[t], begin[t + 1]), ascending, disjoint, without a tile that no row of
/// t sees. Rows past the end of the list do not make a tile masked (their results are not stored).
struct TileSchedule {
  std::vector<std::int32_t> order;  // all tiles, most work first: blocks take them in this order
  std::vector<std::int32_t> begin;  // [tiles + 1]
  std::vector<TileRun> runs;
  std::int64_t full_tiles = 0, masked_tiles = 0;  // tile pairs, for counting work
};

/// Tiles of `tile_rows` query rows, runs of tiles of `tile_keys` keys.
TileSchedule schedule_by_query(std::span<const Interval> visible, std::int64_t keys,
                               std::int64_t tile_rows, std::int64_t tile_keys);
/// Tiles of `tile_keys` keys, runs of tiles of `tile_rows` query rows: the same pairs. Query rows
/// past the end make a tile masked here (their keys' gradients would be wrong).
TileSchedule schedule_by_key(std::span<const Interval> visible, std::int64_t keys,
                             std::int64_t tile_rows, std::int64_t tile_keys);

/// A TileSchedule in device memory.
struct TileList {
  const std::int32_t* order = nullptr;
  const std::int32_t* begin = nullptr;
  const TileRun* runs = nullptr;
  std::int32_t tiles = 0;
};

}  // namespace bdlm::cuda
