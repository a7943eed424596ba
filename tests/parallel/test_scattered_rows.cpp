// SPDX-License-Identifier: Apache-2.0
// Moves of picked rows between the ranks of a tensor group, as plans: every picked row arrives once,
// where the scattering of the picked rows wants it.
#include <catch2/catch.hpp>
#include <random>

#include "parallel/scattered_rows.h"

using namespace bdlm;

namespace {

/// The picked rows in the ranks' results, as their positions among the n rows.
std::vector<std::int32_t> moved(std::span<const std::int32_t> picked, std::int64_t n, int ranks) {
  std::vector<RowMove> moves;
  for (int r = 0; r < ranks; ++r) moves.push_back(plan_move(picked, n, r, ranks));
  std::vector<std::int32_t> all;
  for (int r = 0; r < ranks; ++r) {
    const RowMove& move = moves[static_cast<std::size_t>(r)];
    std::vector<std::int32_t> result(static_cast<std::size_t>(move.result), -1);
    const auto place = [&](std::int64_t to, int from, std::int64_t held, std::int64_t count) {
      const RowMove& sender = moves[static_cast<std::size_t>(from)];
      const std::int64_t first = scattered_share(n, from, ranks).begin;
      for (std::int64_t i = 0; i < count; ++i) {
        std::int32_t& row = result.at(static_cast<std::size_t>(to + i));
        CHECK(row == -1);
        row = static_cast<std::int32_t>(first + sender.held.at(static_cast<std::size_t>(held + i)));
      }
    };
    place(move.stay_to, r, move.stay_from, move.stay);
    for (const RowMove::Run& run : move.receives) {
      const RowMove& sender = moves[static_cast<std::size_t>(run.peer)];
      const auto sent = std::ranges::find(sender.sends, r, &RowMove::Run::peer);
      REQUIRE(sent != sender.sends.end());
      CHECK(sent->count == run.count);
      place(run.first, run.peer, sent->first, run.count);
    }
    all.insert(all.end(), result.begin(), result.end());
  }
  return all;
}

}  // namespace

TEST_CASE("picked rows end up where their own scattering puts them", "[scattered_rows]") {
  std::mt19937 random(1);
  for (int ranks : {1, 2, 3, 5})
    for (std::int64_t n : {0, 1, 2, 7, 40})
      for (int trial = 0; trial < 6; ++trial) {
        std::vector<std::int32_t> picked;
        for (std::int32_t i = 0; i < n; ++i)
          if (trial == 0 || (trial > 1 && random() % 3 == 0) || (trial == 1 && i >= n / 2))
            picked.push_back(i);
        INFO(ranks << " ranks, " << picked.size() << " of " << n);
        CHECK(moved(picked, n, ranks) == picked);
      }
}

TEST_CASE("shares of rows follow one another and differ by one at most", "[scattered_rows]") {
  for (int ranks = 1; ranks <= 5; ++ranks)
    for (std::int64_t rows = 0; rows <= 12; ++rows) {
      std::int64_t at = 0;
      for (int r = 0; r < ranks; ++r) {
        const FlatRange share = scattered_share(rows, r, ranks);
        CHECK(share.begin == at);
        CHECK(std::abs(share.count * ranks - rows) < ranks);
        at += share.count;
      }
      CHECK(at == rows);
    }
}
