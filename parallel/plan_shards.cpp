// SPDX-License-Identifier: Apache-2.0
// Ranks' shards of a set of rows, and finding intervals of rows in them.
#include "parallel/plan_shards.h"

#include <algorithm>
#include <numeric>

namespace bdlm {

Shards::Shards(const RowSet& set, std::span<const std::int32_t> owner, int ranks)
    : begin_(static_cast<std::size_t>(ranks) + 1) {
  for (std::size_t row = 0; row < set.size(); ++row) {
    if (set[row]) ++begin_[static_cast<std::size_t>(owner[row]) + 1];
  }
  std::partial_sum(begin_.begin(), begin_.end(), begin_.begin());
  rows_.resize(begin_.back());
  std::vector<std::size_t> next(begin_.begin(), begin_.end() - 1);
  for (std::size_t row = 0; row < set.size(); ++row) {
    if (set[row]) {
      rows_[next[static_cast<std::size_t>(owner[row])]++] = static_cast<std::int32_t>(row);
    }
  }
}

std::vector<Interval> locate(std::span<const Keys> queries, Interval Keys::*kind,
                             std::span<const std::int32_t> rows) {
  if (rows.empty()) return {};
  std::vector<Interval> found(queries.size());
  Cursor lo(rows), hi(rows);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const Interval& keys = queries[i].*kind;
    if (keys.lo >= keys.hi) continue;
    const Interval here{lo.find(keys.lo), hi.find(keys.hi)};
    if (here.lo < here.hi) found[i] = here;
  }
  return found;
}

Reach reach_of(std::span<const Keys> queries) {
  Reach runs;
  const auto add = [](Reach& reach, Interval next) {
    if (next.lo >= next.hi) return;
    if (!reach.empty() && reach.back().lo <= next.lo && next.lo <= reach.back().hi) {
      reach.back().hi = std::max(reach.back().hi, next.hi);
    } else {
      reach.push_back(next);
    }
  };
  for (const auto kind : {&Keys::clean, &Keys::own}) {
    for (const Keys& keys : queries) add(runs, keys.*kind);
  }
  std::sort(runs.begin(), runs.end(), [](Interval a, Interval b) { return a.lo < b.lo; });
  Reach reach;  // of all copies together
  for (const Interval& run : runs) add(reach, run);
  return reach;
}

std::vector<std::int32_t> covered(std::span<const std::int32_t> rows, const Reach& reach) {
  std::vector<std::int32_t> places;
  auto from = rows.begin();
  for (const Interval& run : reach) {
    from = std::lower_bound(from, rows.end(), run.lo);
    const auto to = std::lower_bound(from, rows.end(), run.hi);
    for (; from != to; ++from) places.push_back(static_cast<std::int32_t>(from - rows.begin()));
  }
  return places;
}

std::vector<std::int32_t> all_places(std::size_t count) {
  std::vector<std::int32_t> places(count);
  std::iota(places.begin(), places.end(), 0);
  return places;
}

}  // namespace bdlm
