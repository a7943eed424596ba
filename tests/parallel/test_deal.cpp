// SPDX-License-Identifier: Apache-2.0
// Deals: who owns what, and how even the balanced one is.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "parallel/deal.h"
#include "test_plan_dense.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

/// The most loaded rank over the mean, of cost and of held rows.
struct Imbalance {
  double cost = 0, rows = 0;
};

Imbalance imbalance(const Case& c, DealKind deal, int ranks, const Elide& elide = {}) {
  PlanOptions options;
  options.deal = deal;
  options.elide = elide;
  double cost_sum = 0, row_sum = 0;
  Imbalance most;
  for (const StepPlan& plan : make_plans(c.batch(), c.model, options, ranks, 0, ranks)) {
    const WorkCounts work = count_work(plan);
    const double cost = c.model.row_cost * static_cast<double>(work.layer_rows) +
                        c.model.pair_cost * static_cast<double>(work.pairs);
    const auto rows = static_cast<double>(plan.at(0).in.size());
    cost_sum += cost;
    row_sum += rows;
    most.cost = std::max(most.cost, cost);
    most.rows = std::max(most.rows, rows);
  }
  return {most.cost * ranks / cost_sum, most.rows * ranks / row_sum};
}

Case one_document(std::int64_t blocks, std::int64_t block_size) {
  Case c;
  c.documents = {blocks * block_size};
  c.block_size = block_size;
  c.predicts.assign(static_cast<std::size_t>(c.rows()), 1);
  std::fill_n(c.predicts.begin(), c.tokens(), std::uint8_t{0});
  c.model.windows = {0, 0, 0, 0};
  c.model.row_cost = 3000;
  return c;
}

/// Many documents, a few of them long; in the first `prompt` percent of each nothing is scored.
Case packed(unsigned seed, std::int64_t tokens, int prompt) {
  std::mt19937 random(seed);
  Case c;
  c.block_size = 1 + static_cast<std::int64_t>(random() % 16);
  c.views = 1 + static_cast<std::int64_t>(random() % 2);
  c.causal = random() % 2 == 0;
  for (std::int64_t left = tokens; left > 0; left -= c.documents.back()) {
    const auto longest = static_cast<unsigned>(random() % 6 == 0 ? tokens / 3 : tokens / 40);
    c.documents.push_back(std::min<std::int64_t>(left, 1 + random() % longest));
  }
  c.predicts.assign(static_cast<std::size_t>(tokens), 0);
  for (std::int64_t view = 0; view < c.views; ++view) {
    for (const std::int64_t length : c.documents) {
      for (std::int64_t i = 0; i < length; ++i) {
        c.predicts.push_back(i * 100 >= length * prompt && random() % 2 == 0);
      }
    }
  }
  c.model.windows = {0, 0, random() % 2 == 0 ? 64 : 0, 0};
  c.model.row_cost = std::vector<double>{1, 300, 1e5}[random() % 3];
  return c;
}

}  // namespace

TEST_CASE("head_tail and contiguous cut as evenly as can be") {
  CHECK(deal_head_tail(12, 3) == std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 2, 2, 1, 1, 0, 0});
  CHECK(deal_head_tail(7, 2) == std::vector<std::int32_t>{0, 1, 1, 1, 1, 0, 0});
  CHECK(deal_head_tail(1, 4) == std::vector<std::int32_t>{0});
  CHECK(deal_head_tail(0, 4).empty());
  CHECK(deal_contiguous(7, 3) == std::vector<std::int32_t>{0, 0, 1, 1, 2, 2, 2});
}

TEST_CASE("owners are those of the blocks, and nobody owns what nobody reads") {
  for (unsigned seed = 0; seed < 80; ++seed) {
    const Case c = random_case(seed);
    INFO("seed " << seed << ": " << describe(c));
    const Layout layout = make_layout(c.batch());
    const int ranks = 1 + static_cast<int>(seed % 9);
    PlanOptions options;
    options.deal = static_cast<DealKind>(seed / 9 % 4);
    const std::vector<std::int32_t> owner = deal_rows(c.batch(), c.model, options, ranks);
    const Dense dense(c);
    const std::vector<std::uint8_t> computed = dense.reader_sets()[0];
    std::vector<std::uint8_t> held = computed;  // and the keys that those rows read
    for (std::int64_t row = 0; row < c.rows(); ++row) {
      if (!computed[static_cast<std::size_t>(row)]) continue;
      for (const std::int64_t key : dense.keys_of(row, c.model.windows[0])) {
        held[static_cast<std::size_t>(key)] = 1;
      }
    }
    std::vector<std::int32_t> of_block(layout.blocks.size(), -1);
    for (std::int32_t row = 0; row < layout.rows(); ++row) {
      const auto r = static_cast<std::size_t>(row);
      const std::int64_t block = layout.block_of[static_cast<std::size_t>(layout.position(row))];
      REQUIRE((owner[r] != -1) == (held[r] != 0));
      if (owner[r] == -1) continue;
      REQUIRE(owner[r] < ranks);
      if (options.deal == DealKind::round_robin) REQUIRE(owner[r] == block % ranks);
      std::int32_t& whole = of_block[static_cast<std::size_t>(block)];
      REQUIRE((whole == -1 || whole == owner[r]));
      whole = owner[r];
    }
  }
}

TEST_CASE("cp cuts positions, alike in every copy") {
  Case c = one_document(5, 3);
  c.views = 2;
  c.predicts.assign(45, 1);
  PlanOptions options;
  options.sharding = Sharding::cp;
  const std::vector<std::int32_t> expected = deal_head_tail(15, 2);
  for (const DealKind deal : {DealKind::head_tail, DealKind::balanced}) {
    options.deal = deal;
    const std::vector<std::int32_t> owner = deal_rows(c.batch(), c.model, options, 2);
    for (std::size_t row = 0; row < owner.size(); ++row) {
      REQUIRE(owner[row] == expected[row % 15]);
    }
  }
}

TEST_CASE("one uniform document is dealt as evenly as by head and tail") {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    const Case c = one_document(2 * ranks * 6, 4);
    Elide none{true, false, false, false, true};
    CHECK(imbalance(c, DealKind::balanced, ranks, none).cost == Approx(1).epsilon(1e-12));
    CHECK(imbalance(c, DealKind::balanced, ranks).cost <=
          imbalance(c, DealKind::head_tail, ranks).cost * (1 + 1e-12));
  }
}

TEST_CASE("packed and prompt-heavy rows are balanced to 2 %, rows to 25 %") {
  int uneven = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Case c = packed(seed, 6000, static_cast<int>(seed % 4) * 30);
    const int ranks = 2 + static_cast<int>(seed % 7);
    INFO("seed " << seed << ", " << ranks << " ranks: " << describe(c));
    const Imbalance balanced = imbalance(c, DealKind::balanced, ranks);
    CHECK(balanced.cost <= 1.02);
    CHECK(balanced.rows <= 1.25);
    uneven += imbalance(c, DealKind::head_tail, ranks).cost > 1.02;
  }
  CHECK(uneven > 20);  // or the rows above are too easy
}

TEST_CASE("no rank gets too many rows, even where their cost is low") {
  // One costly block and ten cheap long ones; blocks without work keep head_tail from parting them.
  std::vector<BlockLoad> blocks(8);
  blocks.push_back({10, 1});
  blocks.insert(blocks.end(), 10, {1, 10});
  blocks.resize(27);
  const std::vector<std::int32_t> rank = deal_balanced(blocks, 2);
  std::int64_t rows[2] = {0, 0};
  for (std::size_t i = 0; i < blocks.size(); ++i) rows[rank[i]] += blocks[i].rows;
  CHECK(std::max(rows[0], rows[1]) <= 1.25 * 101 / 2);
}

TEST_CASE("runs stay long where that is balanced enough") {
  // 64 documents alike: contiguous runs of eight are as even as it gets.
  Case c;
  c.documents.assign(64, 24);
  c.block_size = 8;
  c.predicts.assign(static_cast<std::size_t>(c.rows()), 1);
  c.model.windows = {0, 0};
  const std::vector<std::int32_t> owner = deal_rows(c.batch(), c.model, {}, 8);
  int runs = 1;
  for (std::size_t i = 1; i < static_cast<std::size_t>(c.tokens()); ++i) {
    runs += owner[i] != owner[i - 1];
  }
  CHECK(runs <= 15);
}

TEST_CASE("more ranks than blocks leave some without any") {
  const Case c = one_document(3, 2);
  for (int kind = 0; kind < 4; ++kind) {
    PlanOptions options;
    options.deal = static_cast<DealKind>(kind);
    const auto plans = make_plans(c.batch(), c.model, options, 8, 0, 8);
    CHECK(std::count_if(plans.begin(), plans.end(),
                        [](const StepPlan& plan) { return plan.at(0).in.empty(); }) >= 5);
  }
}
