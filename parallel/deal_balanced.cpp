// SPDX-License-Identifier: Apache-2.0
// The deal by cost. Coarse deals come first, since fewer runs of blocks mean fewer readers and
// longer kernels; the first that is balanced wins. Integers only: every rank must find the same
// one.
#include <algorithm>
#include <numeric>
#include <tuple>

#include "parallel/deal.h"

namespace bdlm {
namespace {

struct Totals {
  std::int64_t cost = 0, rows = 0;
};

struct Candidate {
  std::vector<std::int32_t> rank;  // of each block
  Totals most;                     // over ranks, each by itself
};

Candidate measure(std::vector<std::int32_t> rank, std::span<const BlockLoad> blocks, int ranks) {
  std::vector<Totals> loads(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Totals& load = loads[static_cast<std::size_t>(rank[i])];
    load.cost += blocks[i].cost;
    load.rows += blocks[i].rows;
  }
  Candidate candidate{std::move(rank), {}};
  for (const Totals& load : loads) {
    candidate.most.cost = std::max(candidate.most.cost, load.cost);
    candidate.most.rows = std::max(candidate.most.rows, load.rows);
  }
  return candidate;
}

/// Ends of `chunks` runs of blocks with about equal weight.
template <class Weight>
std::vector<std::size_t> cut(std::span<const BlockLoad> blocks, std::int64_t chunks,
                             Weight weight) {
  std::vector<std::int64_t> before(blocks.size() + 1);
  for (std::size_t i = 0; i < blocks.size(); ++i) before[i + 1] = before[i] + weight(blocks[i]);
  const std::int64_t total = before.back();
  std::vector<std::size_t> ends;
  for (std::int64_t c = 1; c <= chunks; ++c) {
    const std::int64_t goal = total / chunks * c + total % chunks * c / chunks;
    const auto above = std::lower_bound(before.begin(), before.end(), goal);
    const auto end =
        above != before.begin() && goal - *(above - 1) < *above - goal ? above - 1 : above;
    ends.push_back(static_cast<std::size_t>(end - before.begin()));
  }
  ends.back() = blocks.size();
  return ends;
}

/// Longest processing time first: chunks by falling cost, each to the rank with the least so far
/// that has room for its rows.
Candidate spread(std::span<const BlockLoad> blocks, const std::vector<std::size_t>& ends, int ranks,
                 std::int64_t row_limit) {
  std::vector<Totals> chunks(ends.size());
  for (std::size_t c = 0, i = 0; c < ends.size(); ++c) {
    for (; i < ends[c]; ++i) {
      chunks[c].cost += blocks[i].cost;
      chunks[c].rows += blocks[i].rows;
    }
  }
  std::vector<std::size_t> order(chunks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return chunks[a].cost > chunks[b].cost; });
  std::vector<Totals> loads(static_cast<std::size_t>(ranks));
  std::vector<std::int32_t> rank(blocks.size());
  for (const std::size_t c : order) {
    const auto worse = [&](const Totals& load) {  // no room first, then cost, then rows
      const bool full = load.rows + chunks[c].rows > row_limit;
      return std::tuple(full, full ? load.rows : load.cost, load.rows);
    };
    const auto best =
        std::min_element(loads.begin(), loads.end(),
                         [&](const Totals& a, const Totals& b) { return worse(a) < worse(b); });
    best->cost += chunks[c].cost;
    best->rows += chunks[c].rows;
    std::fill(rank.begin() + static_cast<std::ptrdiff_t>(c == 0 ? 0 : ends[c - 1]),
              rank.begin() + static_cast<std::ptrdiff_t>(ends[c]),
              static_cast<std::int32_t>(best - loads.begin()));
  }
  return measure(std::move(rank), blocks, ranks);
}

}  // namespace

std::vector<std::int32_t> deal_balanced(std::span<const BlockLoad> blocks, int ranks) {
  Totals all;
  for (const BlockLoad& block : blocks) {
    all.cost += block.cost;
    all.rows += block.rows;
  }
  const std::int64_t row_limit = 5 * all.rows / (4 * ranks);
  const auto count = static_cast<std::int64_t>(blocks.size());

  Candidate best;
  /// Keeps the better one; true when it is good enough to stop.
  const auto settle = [&](Candidate next) {
    const auto rank_of = [&](const Candidate& c) {
      return std::tuple(c.most.rows > row_limit, c.most.cost, c.most.rows);
    };
    const bool first = best.rank.empty();
    if (first || rank_of(next) < rank_of(best)) best = std::move(next);
    return best.most.rows <= row_limit && 100 * ranks * best.most.cost <= 102 * all.cost;
  };

  if (settle(measure(deal_head_tail(count, ranks), blocks, ranks))) return best.rank;
  const auto by_cost = [](const BlockLoad& block) { return block.cost; };
  std::vector<std::int32_t> runs(blocks.size());
  std::size_t begin = 0;
  std::int32_t owner = 0;
  for (const std::size_t end : cut(blocks, ranks, by_cost)) {
    for (; begin < end; ++begin) runs[begin] = owner;
    ++owner;
  }
  if (settle(measure(std::move(runs), blocks, ranks))) return best.rank;

  // Chunks that are small in both respects: a share of the cost plus a share of the rows. A long
  // document's tail is then cut fine and so is a stretch of cheap rows.
  const auto by_share = [&](const BlockLoad& block) {
    return block.cost * std::max<std::int64_t>(all.rows, 1) + block.rows * all.cost;
  };
  for (std::int64_t chunks = 2 * ranks; chunks < count && chunks <= 256 * ranks; chunks *= 2) {
    if (settle(spread(blocks, cut(blocks, chunks, by_share), ranks, row_limit))) return best.rank;
  }
  if (count <= 512 * std::int64_t{ranks}) {
    std::vector<std::size_t> each(blocks.size());
    std::iota(each.begin(), each.end(), std::size_t{1});
    settle(spread(blocks, each, ranks, row_limit));
  }
  return best.rank;
}

}  // namespace bdlm
