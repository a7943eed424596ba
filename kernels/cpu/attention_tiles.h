// SPDX-License-Identifier: Apache-2.0
// How attention is cut into tiles: query rows into panels (the lanes of a product) and tiles of
// several panels, keys into runs that follow the intervals. Also scratch memory and rows of any
// dtype.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "kernels/attention.h"
#include "kernels/cpu/attention_products.h"
#include "kernels/dispatch.h"

namespace bdlm::attention {

/// Query rows [first, first + count), and the scores that they need in all sources.
struct QueryTile {
  std::int64_t first = 0, count = 0, cost = 0;
};

/// Tiles of `rows_per_tile` query rows. Checks the intervals.
std::vector<QueryTile> query_tiles(std::int64_t rows, std::int64_t rows_per_tile,
                                   std::span<const KeySource> sources);

std::int64_t total_cost(std::span<const QueryTile> tiles);

/// The tiles dealt to `chunks` of about the same cost, each in order.
std::vector<std::vector<QueryTile>> deal(std::vector<QueryTile> tiles, std::int64_t chunks);

/// How many parts the queries of a key head are cut into: the fewest that keep nine tenths of the
/// threads busy, since each part needs its own sums of dkey and dvalue.
std::int64_t chunks_for(std::int64_t kv_heads, std::int64_t team, std::int64_t tiles);

/// A query tile of one key head as panels: panel p is head p % group, in the key head's group, of
/// the rows of sub-tile p / group.
struct Panels {
  Panels(const QueryTile& tile, std::int64_t heads_per_group, std::int64_t head_of_keys,
         std::int64_t panel_lanes, std::int64_t channels)
      : first(tile.first),
        count(tile.count),
        group(heads_per_group),
        kv_head(head_of_keys),
        lanes(panel_lanes),
        head_dim(channels),
        subs((tile.count + panel_lanes - 1) / panel_lanes) {}

  std::int64_t panels() const { return subs * group; }
  std::int64_t first_row(std::int64_t sub) const { return first + sub * lanes; }
  std::int64_t row_count(std::int64_t sub) const { return std::min(lanes, count - sub * lanes); }
  std::int64_t head(std::int64_t p) const { return kv_head * group + p % group; }
  std::int64_t column(std::int64_t p) const { return head(p) * head_dim; }

  std::int64_t first, count, group, kv_head, lanes, head_dim, subs;
};

inline constexpr std::int64_t no_key = std::numeric_limits<std::int32_t>::max();

/// Keys that are packed at once. `padded` rows are made; those beyond `count` are zero.
struct KeyTile {
  std::int64_t first = 0, count = 0, padded = 0;
};

/// A panel's part of a key tile; full: every query sees all of it.
struct KeyRange {
  std::int64_t first = 0, count = 0;
  bool full = false;
};

/// What the queries of a panel see of one source. Keys [first, last) are seen by some of them, keys
/// [full_first, full_last) by all.
struct PanelKeys {
  std::int64_t first = 0, last = 0, full_first = 0, full_last = 0;

  KeyRange in(const KeyTile& tile) const {
    const std::int64_t lo = std::max(first, tile.first);
    const std::int64_t hi = std::min(last, tile.first + tile.count);
    return {lo, hi - lo, lo >= full_first && hi <= full_last};
  }
};

/// The next tile from key `from` on; empty when no panel sees any more. It starts at a key that is
/// seen: block-diagonal intervals then do not straddle tiles.
template <class P>
KeyTile next_keys(std::span<const PanelKeys> panels, std::int64_t from) {
  KeyTile tile{no_key, 0, 0};
  for (const PanelKeys& panel : panels) {
    const std::int64_t first = std::max(panel.first, from);
    if (first < panel.last) tile.first = std::min(tile.first, first);
  }
  if (tile.first == no_key) return tile;
  const KeyTile most{tile.first, P::key_tile, 0};
  for (const PanelKeys& panel : panels) {
    const KeyRange range = panel.in(most);
    if (range.count <= 0) continue;
    const std::int64_t offset = range.first - tile.first;
    tile.count = std::max(tile.count, offset + range.count);
    const std::int64_t rows = offset + round_up(range.count, P::row_step);
    tile.padded = std::max(tile.padded, round_up(rows, P::row_step));
  }
  return tile;
}

/// Reads the intervals of `count` rows into lo and hi [lanes]; lanes beyond repeat the last one, so
/// that they do not turn a full tile into a masked one.
template <class Integer>
PanelKeys panel_keys(const Interval* visible, std::int64_t count, std::int64_t lanes, Integer* lo,
                     Integer* hi) {
  PanelKeys keys{no_key, 0, 0, no_key};
  for (std::int64_t lane = 0; lane < lanes; ++lane) {
    Interval interval = visible[std::min(lane, count - 1)];
    if (interval.lo >= interval.hi) interval = {0, 0};
    lo[lane] = interval.lo;
    hi[lane] = interval.hi;
    keys.full_first = std::max<std::int64_t>(keys.full_first, interval.lo);
    keys.full_last = std::min<std::int64_t>(keys.full_last, interval.hi);
    if (interval.lo < interval.hi) {
      keys.first = std::min<std::int64_t>(keys.first, interval.lo);
      keys.last = std::max<std::int64_t>(keys.last, interval.hi);
    }
  }
  return keys;
}

/// Sub-tiles of a query tile, each with a panel for every head of the group.
template <class P>
std::int64_t sub_tiles(std::int64_t heads_per_group) {
  return std::max<std::int64_t>(1, P::panels / heads_per_group);
}

/// Hands out aligned pieces of one block; over null it only measures.
class Arena {
 public:
  explicit Arena(void* base) : base_(static_cast<std::byte*>(base)) {}

  template <class E>
  E* take(std::int64_t count) {
    E* piece = base_ ? reinterpret_cast<E*>(base_ + used_) : nullptr;
    used_ += round_up(count * static_cast<std::int64_t>(sizeof(E)), 64);
    return piece;
  }
  std::int64_t used() const { return used_; }

 private:
  std::byte* base_;
  std::int64_t used_ = 0;
};

/// to [total][d.padded] = the head at column `col` of x's rows [first, first + count), zero beyond.
template <class T, class E>
void read_rows(const Tensor& x, std::int64_t first, std::int64_t count, std::int64_t col,
               Channels d, E* to, std::int64_t total) {
  const Rows<T> rows(x);
  for (std::int64_t i = 0; i < count; ++i, to += d.padded) {
    const T* from = rows[first + i] + col;
    if constexpr (std::is_same_v<T, E>) {
      std::memcpy(static_cast<void*>(to), from, static_cast<std::size_t>(d.used) * sizeof(T));
    } else {
#pragma omp simd
      for (std::int64_t c = 0; c < d.used; ++c) to[c] = load(from[c]);
    }
    std::fill(to + d.used, to + d.padded, E{});
  }
  std::fill(to, to + (total - count) * d.padded, E{});
}

}  // namespace bdlm::attention
