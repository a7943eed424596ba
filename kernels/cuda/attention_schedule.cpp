// SPDX-License-Identifier: Apache-2.0
#include "kernels/cuda/attention_schedule.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace bdlm::cuda {
namespace {

struct TileRange {
  std::int32_t first = 0, last = 0;
  bool operator==(const TileRange&) const = default;
};

void append(std::vector<TileRun>& runs, std::int32_t first, std::int32_t last, bool masked) {
  if (first < last) runs.push_back({first, last, masked});
}

/// Runs of one tile of query rows: what each row sees lies in tiles [first, last), and what all
/// rows see whole is one such range. Linear in the rows where their intervals ascend, as usual.
class RowTileRuns {
 public:
  explicit RowTileRuns(std::int64_t tile_keys) : tile_keys_(tile_keys) {}

  /// `full_allowed`: false where a tile of rows that is not full makes every pair masked.
  void append_to(std::vector<TileRun>& runs, std::span<const Interval> rows, bool full_allowed) {
    TileRange full = read(rows);
    if (!full_allowed || full.first >= full.last) full = {};
    for (std::size_t i = 0; i < seen_.size();) {
      TileRange touched = seen_[i++];
      while (i < seen_.size() && seen_[i].first <= touched.last) {
        touched.last = std::max(touched.last, seen_[i++].last);
      }
      if (full.first < full.last && touched.first <= full.first && full.last <= touched.last) {
        append(runs, touched.first, full.first, true);
        append(runs, full.first, full.last, false);
        append(runs, full.last, touched.last, true);
      } else {
        append(runs, touched.first, touched.last, true);
      }
    }
  }

 private:
  /// Sets seen_, ascending by first tile; returns the tiles that every row sees whole.
  TileRange read(std::span<const Interval> rows) {
    seen_.clear();
    std::int64_t lo = 0, hi = std::int64_t{1} << 40;
    for (const Interval row : rows) {
      if (row.lo >= row.hi) {
        hi = 0;
        continue;
      }
      lo = std::max<std::int64_t>(lo, row.lo);
      hi = std::min<std::int64_t>(hi, row.hi);
      const TileRange tiles{static_cast<std::int32_t>(row.lo / tile_keys_),
                            static_cast<std::int32_t>((row.hi + tile_keys_ - 1) / tile_keys_)};
      if (seen_.empty() || seen_.back() != tiles) seen_.push_back(tiles);
    }
    const auto by_first = [](TileRange a, TileRange b) { return a.first < b.first; };
    if (!std::is_sorted(seen_.begin(), seen_.end(), by_first)) {
      std::sort(seen_.begin(), seen_.end(), by_first);
    }
    if (seen_.empty() || lo >= hi) return {};
    return {static_cast<std::int32_t>((lo + tile_keys_ - 1) / tile_keys_),
            static_cast<std::int32_t>(hi / tile_keys_)};
  }

  std::int64_t tile_keys_;
  std::vector<TileRange> seen_;
};

/// Runs along the other side, from the runs of one row of tiles after another. Only tiles whose
/// state changes from one row to the next are touched: long contexts have few.
class Transpose {
 public:
  explicit Transpose(std::size_t columns) : columns_(columns) {}

  void next_row(std::vector<TileRun> runs) {
    std::int32_t at = 0;
    for (std::size_t i = 0, j = 0; i < before_.size() || j < runs.size();) {
      const std::int32_t next = std::min(edge(before_, i, at), edge(runs, j, at));
      change(at, next, state(before_, i, at), state(runs, j, at));
      at = next;
      if (i < before_.size() && before_[i].last <= at) ++i;
      if (j < runs.size() && runs[j].last <= at) ++j;
    }
    before_ = std::move(runs);
    ++row_;
  }
  const std::vector<std::vector<TileRun>>& columns() const { return columns_; }

 private:
  static constexpr std::int32_t unseen = -1;  // else a run's `masked`

  static std::int32_t state(const std::vector<TileRun>& runs, std::size_t i, std::int32_t at) {
    return i < runs.size() && runs[i].first <= at ? runs[i].masked : unseen;
  }
  /// Where the state may change next.
  static std::int32_t edge(const std::vector<TileRun>& runs, std::size_t i, std::int32_t at) {
    if (i == runs.size()) return std::numeric_limits<std::int32_t>::max();
    return runs[i].first > at ? runs[i].first : runs[i].last;
  }
  void change(std::int32_t first, std::int32_t last, std::int32_t was, std::int32_t is) {
    if (was == is) return;
    for (std::int32_t u = first; u < last; ++u) {
      std::vector<TileRun>& column = columns_[static_cast<std::size_t>(u)];
      if (was != unseen) column.back().last = row_;
      if (is != unseen) column.push_back({row_, row_, is});
    }
  }

  std::vector<std::vector<TileRun>> columns_;
  std::vector<TileRun> before_;
  std::int32_t row_ = 0;
};

/// Counts and order of a schedule whose begin and runs are there.
void finish(TileSchedule& schedule) {
  const std::size_t tiles = schedule.begin.size() - 1;
  std::vector<std::int64_t> work(tiles, 0);
  for (std::size_t t = 0; t < tiles; ++t) {
    for (std::int32_t r = schedule.begin[t]; r < schedule.begin[t + 1]; ++r) {
      const TileRun& run = schedule.runs[static_cast<std::size_t>(r)];
      work[t] += run.last - run.first;
      (run.masked ? schedule.masked_tiles : schedule.full_tiles) += run.last - run.first;
    }
  }
  schedule.order.resize(tiles);
  std::iota(schedule.order.begin(), schedule.order.end(), 0);
  std::stable_sort(schedule.order.begin(), schedule.order.end(),
                   [&](std::int32_t a, std::int32_t b) {
                     return work[static_cast<std::size_t>(a)] > work[static_cast<std::size_t>(b)];
                   });
}

std::span<const Interval> tile_of(std::span<const Interval> visible, std::size_t first,
                                  std::size_t tile_rows) {
  return visible.subspan(first, std::min(tile_rows, visible.size() - first));
}

}  // namespace

TileSchedule schedule_by_query(std::span<const Interval> visible, std::int64_t /*keys*/,
                               std::int64_t tile_rows, std::int64_t tile_keys) {
  TileSchedule schedule;
  RowTileRuns row_tile(tile_keys);
  const auto step = static_cast<std::size_t>(tile_rows);
  schedule.begin.push_back(0);
  for (std::size_t first = 0; first < visible.size(); first += step) {
    row_tile.append_to(schedule.runs, tile_of(visible, first, step), true);
    schedule.begin.push_back(static_cast<std::int32_t>(schedule.runs.size()));
  }
  finish(schedule);
  return schedule;
}

TileSchedule schedule_by_key(std::span<const Interval> visible, std::int64_t keys,
                             std::int64_t tile_rows, std::int64_t tile_keys) {
  const auto step = static_cast<std::size_t>(tile_rows);
  const std::int64_t key_tiles = (keys + tile_keys - 1) / tile_keys;
  Transpose by_key(static_cast<std::size_t>(key_tiles));
  RowTileRuns row_tile(tile_keys);
  for (std::size_t first = 0; first < visible.size(); first += step) {
    std::vector<TileRun> runs;
    row_tile.append_to(runs, tile_of(visible, first, step), visible.size() - first >= step);
    by_key.next_row(std::move(runs));
  }
  by_key.next_row({});  // ends all runs
  TileSchedule schedule;
  schedule.begin.push_back(0);
  for (const std::vector<TileRun>& column : by_key.columns()) {
    schedule.runs.insert(schedule.runs.end(), column.begin(), column.end());
    schedule.begin.push_back(static_cast<std::int32_t>(schedule.runs.size()));
  }
  finish(schedule);
  return schedule;
}

}  // namespace bdlm::cuda
