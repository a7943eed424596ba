// SPDX-License-Identifier: Apache-2.0
// Reader sets against reachability over dense visibility matrices.
#include <algorithm>
#include <catch2/catch.hpp>

#include "kernels/error.h"
#include "parallel/readers.h"
#include "test_plan_dense.h"

using namespace bdlm;
using namespace bdlm::test;

TEST_CASE("a row's intervals hold exactly the keys that it sees") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Case c = random_case(seed);
    INFO("seed " << seed << ": " << describe(c));
    const Dense dense(c);
    const Layout layout = make_layout(c.batch());
    for (const std::int64_t window : {0, 1, 2, 3, 7}) {
      for (std::int32_t row = 0; row < layout.rows(); ++row) {
        const Keys keys = visible_keys(layout, row, window);
        std::vector<std::int64_t> seen;
        for (const Interval part : {keys.clean, keys.own}) {
          for (std::int64_t key = part.lo; key < part.hi; ++key) seen.push_back(key);
        }
        REQUIRE(seen == dense.keys_of(row, window));
        REQUIRE(keys.count() == static_cast<std::int64_t>(seen.size()));
      }
    }
  }
}

TEST_CASE("reader sets are what reachability says") {
  for (unsigned seed = 0; seed < 150; ++seed) {
    const Case c = random_case(seed);
    INFO("seed " << seed << ": " << describe(c));
    REQUIRE(reader_sets(c.batch(), c.model, {}) == Dense(c).reader_sets());
  }
}

TEST_CASE("switching elisions off adds rows, and all of them make every row") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Case c = random_case(seed);
    INFO("seed " << seed << ": " << describe(c));
    const auto tight = reader_sets(c.batch(), c.model, {});
    const auto T = c.tokens();
    for (int off = 1; off < 8; ++off) {
      Elide elide;
      elide.unscored_blocks = (off & 1) == 0;
      elide.last_layer = (off & 2) == 0;
      elide.unreached_clean = (off & 4) == 0;
      const auto sets = reader_sets(c.batch(), c.model, elide);
      for (std::size_t layer = 0; layer < sets.size(); ++layer) {
        const bool last = layer + 1 == sets.size();
        for (std::int64_t row = 0; row < c.rows(); ++row) {
          const auto r = static_cast<std::size_t>(row);
          REQUIRE(sets[layer][r] >= tight[layer][r]);
          if (last && elide.last_layer) {
            REQUIRE(sets[layer][r] == c.predicts[r]);
          } else if (!(row < T ? elide.unreached_clean : elide.unscored_blocks)) {
            REQUIRE(sets[layer][r] == 1);
          }
          if (off == 7) REQUIRE(sets[layer][r] == 1);
        }
      }
    }
  }
}

TEST_CASE("without its elision the last layer computes all that it reads") {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Case c = random_case(seed);
    INFO("seed " << seed << ": " << describe(c));
    PlanOptions options;
    options.elide.last_layer = false;
    for (const StepPlan& plan : make_plans(c.batch(), c.model, options, 3, 0, 3)) {
      REQUIRE(plan.at(plan.layers() - 1).out_is_in);
    }
  }
}

TEST_CASE("only the scored response of a long prompt is computed") {
  // 90 tokens of prompt, 10 of response in blocks of 10: corrupted rows of one block, no clean
  // tail.
  Case c;
  c.documents = {100};
  c.block_size = 10;
  c.predicts.assign(200, 0);
  c.predicts[195] = 1;
  c.model.windows = {0, 0};
  const auto sets = reader_sets(c.batch(), c.model, {});
  CHECK(std::count(sets[1].begin(), sets[1].end(), 1) == 1);
  CHECK(std::count(sets[0].begin(), sets[0].begin() + 100, 1) == 90);
  CHECK(std::count(sets[0].begin() + 100, sets[0].end(), 1) == 10);
}

TEST_CASE("shapes that do not fit each other are refused with a reason") {
  Case c = random_case(1);
  c.predicts.pop_back();
  CHECK_THROWS_AS(reader_sets(c.batch(), c.model, {}), Error);
  c = random_case(1);
  c.block_size = 0;
  CHECK_THROWS_AS(reader_sets(c.batch(), c.model, {}), Error);
  c = random_case(1);
  c.model.windows.clear();
  CHECK_THROWS_AS(reader_sets(c.batch(), c.model, {}), Error);
}
