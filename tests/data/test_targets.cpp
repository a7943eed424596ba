// SPDX-License-Identifier: Apache-2.0
// Targets and joined micro-batches against a table of (row id -> token) filled token by token.
#include <catch2/catch.hpp>
#include <map>
#include <tuple>

#include "data/row.h"
#include "kernels/error.h"

using namespace bdlm;

namespace {

using Answer = std::tuple<std::int32_t, double, TargetKind>;

/// (packed row, copy, position in the packed row) -> what that row predicts.
using Table = std::map<std::tuple<std::size_t, std::int64_t, std::int64_t>, Answer>;

Table slow_targets(const std::vector<CorruptedRow>& rows, int shift) {
  Table table;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const CorruptedRow& row = rows[r];
    std::int64_t i = 0;
    for (std::int64_t length : row.clean.documents)
      for (std::int64_t position = 0; position < length; ++position, ++i) {
        for (std::size_t view = 0; view < row.views.size(); ++view)
          if (row.weights[view][i] != 0 && position >= shift)
            table[{r, view + 1, i - shift}] = {row.clean.tokens[i], row.weights[view][i],
                                               TargetKind::diffusion};
        if (!row.ar_weights.empty() && row.ar_weights[i] != 0 && position > 0)
          table[{r, 0, i - 1}] = {row.clean.tokens[i], row.ar_weights[i],
                                  TargetKind::autoregressive};
      }
  }
  return table;
}

std::vector<CorruptedRow> make_rows(const Objective& objective) {
  std::vector<CorruptedRow> rows;
  const std::vector<std::vector<std::int64_t>> lengths = {{9, 1, 12}, {}, {7}, {1, 1, 20, 3}};
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    PackedRow row;
    row.index = static_cast<std::int64_t>(10 + r);
    row.documents = lengths[r];
    for (std::int64_t length : lengths[r])
      for (std::int64_t i = 0; i < length; ++i) {
        row.eligible.push_back((i + length) % 5 != 0);
        row.tokens.push_back(static_cast<std::int32_t>(row.tokens.size() + 30 * r));
      }
    rows.push_back(corrupt(row, objective, 200, 3, 2));
  }
  return rows;
}

Objective make_objective(int shift, Views views, double ar) {
  Objective objective;
  objective.block_size = 4;
  objective.mask_token_id = 199;
  objective.target_shift = shift;
  objective.views = views;
  objective.ar_loss_weight = ar;
  return objective;
}

}  // namespace

TEST_CASE("targets: every row id predicts what the table says", "[targets]") {
  for (int shift : {0, 1})
    for (Views views : {Views::one, Views::complementary})
      for (double ar : {0.0, 1.0}) {
        CAPTURE(shift, static_cast<int>(views), ar);
        const Objective objective = make_objective(shift, views, ar);
        for (const CorruptedRow& row : make_rows(objective)) {
          const Table table = slow_targets({row}, shift);
          const std::vector<Target> targets = targets_of(row, objective);
          CHECK(targets.size() == table.size());
          std::int64_t last = -1;
          for (const Target& target : targets) {
            CHECK(target.row > last);
            last = target.row;
            const std::int64_t n = row.clean.size();
            const auto found = table.find({0, target.row / n, target.row % n});
            REQUIRE(found != table.end());
            CHECK(found->second == Answer{target.token, target.weight, target.kind});
          }
        }
      }
}

TEST_CASE("targets: weights of a document's first token are not read with a shift", "[targets]") {
  Objective objective = make_objective(1, Views::one, 1);
  CorruptedRow row;
  row.clean.documents = {2, 2};
  row.clean.tokens = {1, 2, 3, 4};
  row.clean.eligible = {1, 1, 1, 1};
  row.views = {{9, 9, 9, 9}};
  row.weights = {{1, 1, 1, 1}};
  row.ar_weights = {1, 0, 1, 1};
  const std::vector<Target> targets = targets_of(row, objective);
  REQUIRE(targets.size() == 3);
  CHECK(targets[0].row == 2);  // clean token 2 predicts token 3
  CHECK(targets[0].token == 4);
  CHECK(targets[1].row == 4);
  CHECK(targets[1].token == 2);
  CHECK(targets[2].row == 6);
  CHECK(targets[2].token == 4);
}

TEST_CASE("join: documents one after another, row ids in the joined row", "[targets]") {
  for (int shift : {0, 1}) {
    const Objective objective = make_objective(shift, Views::complementary, 1);
    const std::vector<CorruptedRow> rows = make_rows(objective);
    const Table table = slow_targets(rows, shift);
    std::vector<std::int64_t> offsets;
    std::int64_t total = 0;
    for (const CorruptedRow& row : rows) {
      offsets.push_back(total);
      total += row.clean.size();
    }
    std::size_t parts_targets = 0;
    LossCounts parts_counts;
    for (const auto& [first, views] : {std::pair{0, 2}, {0, 1}, {1, 1}}) {
      CAPTURE(shift, first, views);
      const MicroBatch batch = join(rows, objective, first, views);
      CHECK(batch.tokens == total);
      CHECK(batch.views == views);
      CHECK(batch.rows == std::vector<std::int64_t>{10, 11, 12, 13});
      CHECK(batch.documents == std::vector<std::int64_t>{9, 1, 12, 7, 1, 1, 20, 3});
      REQUIRE(batch.ids.size() == static_cast<std::size_t>((1 + views) * total));
      std::map<std::int64_t, Answer> expected;
      for (std::size_t r = 0; r < rows.size(); ++r)
        for (std::int64_t copy = 0; copy <= 2; ++copy) {
          const std::int64_t joined = copy == 0 ? 0 : copy - first;
          if (copy > 0 && (joined < 1 || joined > views)) continue;
          for (std::int64_t i = 0; i < rows[r].clean.size(); ++i) {
            const std::int64_t id = joined * total + offsets[r] + i;
            CHECK(batch.ids[id] ==
                  (copy == 0 ? rows[r].clean.tokens[i] : rows[r].views[copy - 1][i]));
            const auto found = table.find({r, copy, i});
            if (found != table.end() && (copy > 0 || first == 0)) expected[id] = found->second;
          }
        }
      REQUIRE(batch.targets.size() == expected.size());
      auto next = expected.begin();
      for (const Target& target : batch.targets) {
        CHECK(target.row == next->first);
        CHECK(Answer{target.token, target.weight, target.kind} == next->second);
        ++next;
      }
      if (views == 1) {
        parts_targets += batch.targets.size();
        parts_counts += batch.counts;
      } else {
        parts_counts.eligible -= batch.counts.eligible;
        parts_counts.masked -= batch.counts.masked;
        parts_counts.documents -= batch.counts.documents;
        parts_counts.ar_pairs -= batch.counts.ar_pairs;
        CHECK(batch.counts.eligible > 0);
        CHECK(batch.counts.ar_pairs > 0);
      }
    }
    // A micro-batch a view is the same work, cut in two.
    CHECK(parts_targets == table.size());
    CHECK(parts_counts.eligible == 0);
    CHECK(parts_counts.masked == 0);
    CHECK(parts_counts.documents == 0);
    CHECK(parts_counts.ar_pairs == 0);
  }
}

TEST_CASE("join: no rows, and views that are not there", "[targets]") {
  const Objective objective = make_objective(0, Views::one, 0);
  const MicroBatch empty = join({}, objective, 0, 1);
  CHECK(empty.tokens == 0);
  CHECK(empty.ids.empty());
  CHECK(empty.targets.empty());
  CHECK_THROWS_AS(join(make_rows(objective), objective, 1, 1), Error);
}
