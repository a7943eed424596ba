// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/attention_tiles.h"

namespace bdlm::attention {

std::vector<QueryTile> query_tiles(std::int64_t rows, std::int64_t rows_per_tile,
                                   std::span<const KeySource> sources) {
  constexpr std::int64_t row_cost = 16;  // packing and writing a row, in scores
  std::vector<QueryTile> tiles;
  for (std::int64_t first = 0; first < rows; first += rows_per_tile) {
    QueryTile tile{first, std::min(rows_per_tile, rows - first), 0};
    tile.cost = row_cost * tile.count;
    for (const KeySource& source : sources) {
      for (std::int64_t row = first; row < first + tile.count; ++row) {
        const Interval seen = source.visible[row];
        if (seen.lo >= seen.hi) continue;
        require(seen.lo >= 0 && seen.hi <= source.key.rows,
                "attention: query row {} reads keys [{}, {}) of a source of {} keys", row, seen.lo,
                seen.hi, source.key.rows);
        tile.cost += seen.hi - seen.lo;
      }
    }
    tiles.push_back(tile);
  }
  return tiles;
}

std::int64_t total_cost(std::span<const QueryTile> tiles) {
  std::int64_t cost = 0;
  for (const QueryTile& tile : tiles) cost += tile.cost;
  return cost;
}

std::vector<std::vector<QueryTile>> deal(std::vector<QueryTile> tiles, std::int64_t chunks) {
  std::ranges::stable_sort(tiles, std::greater{}, &QueryTile::cost);
  std::vector<std::vector<QueryTile>> hands(static_cast<std::size_t>(chunks));
  std::vector<std::int64_t> costs(hands.size());
  for (const QueryTile& tile : tiles) {
    const auto least = std::ranges::min_element(costs);
    *least += tile.cost;
    hands[static_cast<std::size_t>(least - costs.begin())].push_back(tile);
  }
  for (auto& hand : hands) std::ranges::sort(hand, {}, &QueryTile::first);
  return hands;
}

std::int64_t chunks_for(std::int64_t kv_heads, std::int64_t team, std::int64_t tiles) {
  const std::int64_t most = std::min(team, tiles);
  for (std::int64_t chunks = 1; chunks < most; ++chunks) {
    const std::int64_t units = kv_heads * chunks;
    if (10 * units >= 9 * round_up(units, team)) return chunks;
  }
  return most;
}

}  // namespace bdlm::attention
