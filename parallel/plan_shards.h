// SPDX-License-Identifier: Apache-2.0
// Ranks' shards of a set of rows, and finding intervals of rows in them. Linear in rows: shards are
// sorted and intervals ascend, so that finding is a walk; no pair of rows is ever looked at.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/readers.h"

namespace bdlm {

/// The rows of a set by owner, ascending.
class Shards {
 public:
  Shards(const RowSet& set, std::span<const std::int32_t> owner, int ranks);

  std::size_t begin(int rank) const { return begin_[static_cast<std::size_t>(rank)]; }
  std::size_t size(int rank) const { return begin(rank + 1) - begin(rank); }
  std::span<const std::int32_t> of(int rank) const {
    return all().subspan(begin(rank), size(rank));
  }
  std::span<const std::int32_t> all() const { return rows_; }  // rank after rank

 private:
  std::vector<std::size_t> begin_;
  std::vector<std::int32_t> rows_;
};

/// First place in an ascending list whose row is not below the one asked for. The walk starts where
/// the last one ended: linear for queries that ascend, with a way back where a copy starts.
class Cursor {
 public:
  explicit Cursor(std::span<const std::int32_t> rows) : rows_(rows) {}
  std::int32_t find(std::int32_t row) {
    while (at_ > 0 && rows_[at_ - 1] >= row) --at_;
    while (at_ < rows_.size() && rows_[at_] < row) ++at_;
    return static_cast<std::int32_t>(at_);
  }

 private:
  std::span<const std::int32_t> rows_;
  std::size_t at_ = 0;
};

/// Where each query's keys of a kind lie in an ascending list of rows; {0, 0} where nowhere.
std::vector<Interval> locate(std::span<const Keys> queries, Interval Keys::*kind,
                             std::span<const std::int32_t> rows);

/// All rows that some query sees: disjoint intervals of row ids, ascending. Few, since neighbouring
/// queries see nearly the same.
using Reach = std::vector<Interval>;
Reach reach_of(std::span<const Keys> queries);

/// Places in an ascending list of the rows that are reached.
std::vector<std::int32_t> covered(std::span<const std::int32_t> rows, const Reach& reach);
std::vector<std::int32_t> all_places(std::size_t count);

}  // namespace bdlm
