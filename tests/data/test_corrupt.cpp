// SPDX-License-Identifier: Apache-2.0
// Corruption: what may change, how often, with which weight, and that it depends on logical ids
// only.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "data/row.h"
#include "kernels/error.h"

using namespace bdlm;

namespace {

constexpr std::int64_t vocab = 50, mask_id = 49;

/// Tokens 0 .. 48; in each document the first `prompt` tokens are not eligible.
PackedRow make_row(std::vector<std::int64_t> lengths, std::int64_t prompt, std::int64_t index = 5) {
  PackedRow row;
  row.index = index;
  row.documents = std::move(lengths);
  for (std::int64_t length : row.documents)
    for (std::int64_t i = 0; i < length; ++i) {
      row.tokens.push_back(static_cast<std::int32_t>((row.tokens.size() * 7 + 3) % mask_id));
      row.eligible.push_back(i >= prompt);
    }
  return row;
}

Objective make_objective() {
  Objective objective;
  objective.block_size = 8;
  objective.mask_token_id = mask_id;
  return objective;
}

std::vector<std::int64_t> positions(const PackedRow& row) {
  std::vector<std::int64_t> out;
  for (std::int64_t length : row.documents)
    for (std::int64_t i = 0; i < length; ++i) out.push_back(i);
  return out;
}

}  // namespace

TEST_CASE("corrupt: only eligible tokens become the mask, and just these have a weight",
          "[corrupt]") {
  const PackedRow row = make_row({13, 1, 30, 4}, 3);
  const CorruptedRow out = corrupt(row, make_objective(), vocab, 7, 3);
  REQUIRE(out.views.size() == 1);
  CHECK(out.clean.tokens == row.tokens);
  CHECK(out.ar_weights.empty());
  std::int64_t chosen = 0;
  for (std::int64_t i = 0; i < row.size(); ++i) {
    const bool masked = out.views[0][i] == mask_id;
    chosen += masked;
    CHECK((masked || out.views[0][i] == row.tokens[i]));
    CHECK((out.weights[0][i] != 0) == masked);
    if (masked) CHECK(row.eligible[i] == 1);
  }
  CHECK(chosen > 0);
  CHECK(chosen < row.size());
}

TEST_CASE("corrupt: noise is a function of seed, step and row index alone", "[corrupt]") {
  const Objective objective = make_objective();
  const PackedRow row = make_row({40, 33}, 0);
  const auto views = corrupt(row, objective, vocab, 7, 3).views;
  CHECK(corrupt(row, objective, vocab, 7, 3).views == views);
  CHECK(corrupt(row, objective, vocab, 8, 3).views != views);
  CHECK(corrupt(row, objective, vocab, 7, 4).views != views);
  CHECK(corrupt(make_row({40, 33}, 0, 6), objective, vocab, 7, 3).views != views);
  // (row, step) and (step, row) are different counters, whatever the size of the numbers.
  const std::int64_t large = (std::int64_t{1} << 31) + 5;
  CHECK(corrupt(make_row({40, 33}, 0, large), objective, vocab, 7, 3).views !=
        corrupt(make_row({40, 33}, 0, 3), objective, vocab, 7, large).views);
}

TEST_CASE("corrupt: the draw of one row is pinned, since resumed runs repeat it", "[corrupt]") {
  Objective objective = make_objective();
  objective.block_size = 4;
  const CorruptedRow out = corrupt(make_row({11, 6}, 1), objective, vocab, 1, 1);
  std::string chosen;
  for (std::int32_t token : out.views[0]) chosen += token == mask_id ? 'x' : '.';
  CHECK(chosen == ".xx....xxxx.xxxxx");
}

TEST_CASE("corrupt: stratified levels are one shift of an even grid, in mixed order", "[corrupt]") {
  Objective objective = make_objective();
  objective.block_size = 60;
  objective.range_low = 0.3;
  objective.range_high = 0.9;
  const std::int64_t blocks = 7;  // 60 x 4 + 20, 60 x 2: the short block counts as one
  const PackedRow row = make_row({260, 120}, 0);
  std::set<std::vector<std::int64_t>> orders;
  for (std::int64_t step = 1; step <= 5; ++step) {
    const CorruptedRow out = corrupt(row, objective, vocab, 7, step);
    const std::int64_t begins[] = {0, 60, 120, 180, 240, 260, 320, 380};
    std::vector<std::int64_t> order;
    std::vector<double> rest;
    for (std::int64_t j = 0; j < blocks; ++j) {
      std::set<double> weights;
      for (std::int64_t i = begins[j]; i < begins[j + 1]; ++i)
        if (out.weights[0][i] != 0) weights.insert(out.weights[0][i]);
      REQUIRE(weights.size() == 1);  // one level a block, weight 1 / t
      const double v = (1 / *weights.begin() - 0.3) / 0.6 * blocks;
      order.push_back(static_cast<std::int64_t>(std::floor(v)));
      rest.push_back(v - std::floor(v));
    }
    orders.insert(order);
    for (double r : rest) CHECK(r == Approx(rest[0]).margin(1e-9));
    std::sort(order.begin(), order.end());
    for (std::int64_t j = 0; j < blocks; ++j) CHECK(order[j] == j);
  }
  CHECK(orders.size() > 3);
}

TEST_CASE("corrupt: levels are uniform in the range and tokens are hit with chance p",
          "[corrupt]") {
  for (NoiseLevel level : {NoiseLevel::stratified, NoiseLevel::independent}) {
    for (NoiseSchedule schedule : {NoiseSchedule::linear, NoiseSchedule::square}) {
      CAPTURE(static_cast<int>(level), static_cast<int>(schedule));
      Objective objective = make_objective();
      objective.level = level;
      objective.schedule = schedule;
      objective.scored = Scored::eligible;  // shows every block's weight
      objective.range_low = 0.2;
      double hits = 0, expected = 0, variance = 0, level_sum = 0, tokens = 0;
      for (std::int64_t index = 0; index < 200; ++index) {
        const PackedRow row = make_row({64, 40}, 0, index);
        const CorruptedRow out = corrupt(row, objective, vocab, 7, 1);
        for (std::int64_t i = 0; i < row.size(); ++i) {
          const double t = (schedule == NoiseSchedule::linear ? 1 : 2) / out.weights[0][i];
          const double p = schedule == NoiseSchedule::linear ? t : t * t;
          hits += out.views[0][i] == mask_id;
          expected += p;
          variance += p * (1 - p);
          level_sum += t;
          tokens += 1;
        }
      }
      CHECK(std::abs(hits - expected) < 4 * std::sqrt(variance));
      CHECK(level_sum / tokens == Approx(0.6).margin(0.02));
    }
  }
}

TEST_CASE("corrupt: the ends of the range", "[corrupt]") {
  Objective objective = make_objective();
  const PackedRow row = make_row({50}, 0);
  objective.range_low = objective.range_high = 1;
  CHECK(count(corrupt(row, objective, vocab, 7, 1), objective).masked == 50);
  objective.range_low = objective.range_high = 0;
  objective.scored = Scored::eligible;
  const CorruptedRow none = corrupt(row, objective, vocab, 7, 1);
  CHECK(none.views[0] == row.tokens);
  for (double weight : none.weights[0]) CHECK(std::isfinite(weight));
}

TEST_CASE("corrupt: one level a document with granularity sequence", "[corrupt]") {
  for (NoiseLevel level : {NoiseLevel::stratified, NoiseLevel::independent}) {
    Objective objective = make_objective();
    objective.granularity = Granularity::sequence;
    objective.scored = Scored::eligible;
    objective.level = level;
    const PackedRow row = make_row({33, 9, 20}, 0);
    const CorruptedRow out = corrupt(row, objective, vocab, 7, 1);
    std::set<double> weights(out.weights[0].begin(), out.weights[0].end());
    CHECK(weights.size() == 3);
    CHECK(std::set<double>(out.weights[0].begin(), out.weights[0].begin() + 33).size() == 1);
  }
}

TEST_CASE("corrupt: complementary views share one draw, level and weight", "[corrupt]") {
  Objective objective = make_objective();
  const PackedRow row = make_row({29, 14}, 4);
  const CorruptedRow one = corrupt(row, objective, vocab, 7, 3);
  objective.views = Views::complementary;
  const CorruptedRow two = corrupt(row, objective, vocab, 7, 3);
  REQUIRE(two.views.size() == 2);
  CHECK(two.views[0] == one.views[0]);
  CHECK(two.weights[0] == one.weights[0]);
  std::map<std::int64_t, std::set<double>> block_weights;
  for (std::int64_t i = 0; i < row.size(); ++i) {
    const int hits = (two.views[0][i] == mask_id) + (two.views[1][i] == mask_id);
    CHECK(hits == row.eligible[i]);
    for (int view : {0, 1}) CHECK((two.weights[view][i] != 0) == (two.views[view][i] == mask_id));
    const std::int64_t block = i < 29 ? i / 8 : 100 + (i - 29) / 8;
    if (hits != 0) block_weights[block].insert(two.weights[0][i] + two.weights[1][i]);
  }
  for (const auto& [block, weights] : block_weights) CHECK(weights.size() == 1);
  CHECK(count(two, objective).masked == count(two, objective).eligible);
}

TEST_CASE("corrupt: uniform corruption draws any token but the mask", "[corrupt]") {
  Objective objective = make_objective();
  objective.corruption = Corruption::uniform;
  objective.scored = Scored::eligible;
  objective.range_low = objective.range_high = 1;
  for (std::int64_t mask : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{20}, vocab - 1}) {
    objective.mask_token_id = mask;
    std::map<std::int32_t, std::int64_t> seen;
    bool unchanged = false;
    for (std::int64_t index = 0; index < 60; ++index) {
      PackedRow row = make_row({100}, 0, index);
      const CorruptedRow out = corrupt(row, objective, vocab, 7, 1);
      for (std::int64_t i = 0; i < row.size(); ++i) {
        ++seen[out.views[0][i]];
        unchanged |= out.views[0][i] == row.tokens[i];
        CHECK(out.weights[0][i] == 1);
      }
    }
    CAPTURE(mask);
    CHECK(seen.size() == (mask < 0 ? vocab : vocab - 1));
    CHECK(seen.count(static_cast<std::int32_t>(mask)) == 0);
    CHECK(seen.begin()->first >= 0);
    CHECK(seen.rbegin()->first < vocab);
    for (const auto& [id, times] : seen) CHECK(std::abs(times - 6000.0 / vocab) < 60);
    CHECK(unchanged);
  }
}

TEST_CASE("corrupt: a shifted target is never a document's first token", "[corrupt]") {
  Objective objective = make_objective();
  objective.target_shift = 1;
  objective.range_low = objective.range_high = 1;
  const PackedRow row = make_row({5, 1, 9}, 0);
  const CorruptedRow out = corrupt(row, objective, vocab, 7, 1);
  const auto position = positions(row);
  for (std::int64_t i = 0; i < row.size(); ++i) {
    CHECK(out.views[0][i] == mask_id);  // corrupted all the same
    CHECK((out.weights[0][i] != 0) == (position[i] > 0));
  }
  const LossCounts counts = count(out, objective);
  CHECK(counts.eligible == 12);
  CHECK(counts.masked == 12);
  CHECK(counts.documents == 2);
}

TEST_CASE("corrupt: normalize sequence weighs documents alike", "[corrupt]") {
  for (int shift : {0, 1}) {
    for (std::int64_t prompt : {0, 2}) {
      CAPTURE(shift, prompt);
      Objective objective = make_objective();
      objective.normalize = Normalize::sequence;
      objective.weight = LossWeight::none;
      objective.scored = Scored::eligible;
      objective.ar_loss_weight = 1;
      objective.ar_normalize = ArNormalize::shared;
      objective.target_shift = shift;
      const PackedRow row = make_row({17, 1, 30}, prompt);
      const CorruptedRow out = corrupt(row, objective, vocab, 7, 1);
      const auto sum = [](const std::vector<double>& w, std::int64_t begin, std::int64_t end) {
        return std::accumulate(w.begin() + begin, w.begin() + end, 0.0);
      };
      const bool second = prompt == 0 && shift == 0;  // one token: has it a target?
      CHECK(count(out, objective).documents == 2 + second);
      CHECK(sum(out.weights[0], 0, 17) == Approx(1));
      CHECK(sum(out.weights[0], 17, 18) == second);
      CHECK(sum(out.weights[0], 18, 48) == Approx(1));
      // With shift 0 and no prompt the first token is a target, but no pair ends in it.
      CHECK(sum(out.ar_weights, 18, 48) == Approx(second ? 29.0 / 30 : 1));
    }
  }
}

TEST_CASE("corrupt: next-token pairs and counts", "[corrupt]") {
  Objective objective = make_objective();
  objective.ar_loss_weight = 0.5;
  const PackedRow row = make_row({17, 2, 1, 30}, 0);
  const CorruptedRow out = corrupt(row, objective, vocab, 7, 1);
  const auto position = positions(row);
  for (std::int64_t i = 0; i < row.size(); ++i) CHECK(out.ar_weights[i] == (position[i] > 0));
  LossCounts counts = count(out, objective);
  CHECK(counts.eligible == 50);
  CHECK(counts.ar_pairs == 46);
  CHECK(counts.documents == 4);
  counts += counts;
  CHECK(counts.eligible == 100);
  CHECK(counts.ar_pairs == 92);
  CHECK(counts.documents == 8);
}

TEST_CASE("corrupt: empty rows, and rows that contradict themselves", "[corrupt]") {
  const Objective objective = make_objective();
  const CorruptedRow out = corrupt(PackedRow{}, objective, vocab, 7, 1);
  CHECK(out.views[0].empty());
  CHECK(count(out, objective).eligible == 0);
  PackedRow wrong = make_row({10}, 0);
  wrong.documents = {9};
  CHECK_THROWS_AS(corrupt(wrong, objective, vocab, 7, 1), Error);
  CHECK_THROWS_AS(corrupt(make_row({10}, 0), objective, mask_id, 7, 1), Error);  // mask id outside
}
