// SPDX-License-Identifier: Apache-2.0
// Bytes of the exchange: conservation on random rows, and the closed forms of docs/csbp.md.
#include <algorithm>
#include <catch2/catch.hpp>
#include <numeric>

#include "test_plan_dense.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

std::vector<ExchangeBytes> bytes_of(const Case& c, const PlanOptions& options, int ranks,
                                    std::int64_t wire = 2, std::int64_t sum = 4) {
  std::vector<ExchangeBytes> bytes;
  const std::vector<StepPlan> plans = make_plans(c.batch(), c.model, options, ranks, 0, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    bytes.push_back(
        exchange_bytes(plans[static_cast<std::size_t>(rank)], c.model, options, rank, wire, sum));
  }
  return bytes;
}

/// One document of 2 * ranks chunks, all of it scored.
Case uniform(int ranks, std::int64_t chunk, std::int64_t block_size, std::size_t layers) {
  Case c;
  c.documents = {2 * ranks * chunk};
  c.block_size = block_size;
  c.predicts.assign(static_cast<std::size_t>(c.rows()), 1);
  std::fill_n(c.predicts.begin(), c.tokens(), std::uint8_t{0});
  c.model.windows.assign(layers, 0);
  c.model.kv_width = 10;
  return c;
}

}  // namespace

TEST_CASE("what is sent is received, in every sharding and exchange") {
  for (unsigned seed = 0; seed < 90; ++seed) {
    const Case c = random_case(seed);
    PlanOptions options;
    options.sharding = static_cast<Sharding>(seed % 3);
    options.exchange = static_cast<ExchangeKind>(seed / 3 % 3);
    const int ranks = 1 + static_cast<int>(seed / 9);
    ExchangeBytes sum;
    for (const ExchangeBytes& bytes : bytes_of(c, options, ranks)) {
      sum.forward_sent += bytes.forward_sent;
      sum.forward_received += bytes.forward_received;
      sum.gradient_sent += bytes.gradient_sent;
      sum.gradient_received += bytes.gradient_received;
      if (options.exchange != ExchangeKind::ring) {
        CHECK(bytes.gradient_sent == bytes.forward_received);
        CHECK(bytes.gradient_received == bytes.forward_sent);
      }
      if (options.sharding == Sharding::bp || ranks == 1) CHECK(bytes.forward_received == 0);
    }
    CHECK(sum.forward_sent == sum.forward_received);
    CHECK(sum.gradient_sent == sum.gradient_received);
  }
}

TEST_CASE("exact sends no more than allgather, which sends what the ring does") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Case c = random_case(seed);
    const int ranks = 2 + static_cast<int>(seed % 5);
    PlanOptions options;
    const auto exact = bytes_of(c, options, ranks);
    options.exchange = ExchangeKind::allgather;
    const auto all = bytes_of(c, options, ranks);
    options.exchange = ExchangeKind::ring;
    const auto ring = bytes_of(c, options, ranks, 2, 2);
    std::int64_t all_sent = 0, ring_sent = 0, all_returned = 0, ring_returned = 0;
    for (std::size_t rank = 0; rank < exact.size(); ++rank) {
      CHECK(exact[rank].forward_received <= all[rank].forward_received);
      CHECK(ring[rank].forward_received == all[rank].forward_received);
      all_sent += all[rank].forward_sent;
      ring_sent += ring[rank].forward_sent;
      all_returned += all[rank].gradient_sent;
      ring_returned += ring[rank].gradient_sent;
    }
    CHECK(ring_sent == all_sent);
    CHECK(ring_returned == all_returned);
  }
}

TEST_CASE("the ring carries every shard past every rank") {
  // Shards are hand-made: 5, 0, 7 and 2 rows in the ring 0 -> 1 -> 2 -> 3 -> 0.
  LayerShapes model;
  model.kv_width = 1;
  PlanOptions options;
  options.exchange = ExchangeKind::ring;
  StepPlan plan;
  plan.layer = {0, 0};
  plan.distinct.emplace_back().shard_rows = {5, 0, 7, 2};
  const ExchangeBytes third = exchange_bytes(plan, model, options, 2, 2, 8);
  CHECK(third.forward_sent == 2 * 2 * (7 + 0 + 5));       // all but rank 3's, which it sends to
  CHECK(third.forward_received == 2 * 2 * (0 + 5 + 2));   // all but its own
  CHECK(third.gradient_sent == 2 * 8 * (0 + 5 + 2));      // sums of all but its own
  CHECK(third.gradient_received == 2 * 8 * (5 + 2 + 7));  // all but the sender's, rank 1
}

TEST_CASE("a uniform document with head and tail exchanges what the formulas say") {
  // Rank r owns chunks r and 2P - 1 - r of c rows. Its last block reads all rows before it: of
  // other ranks (2P - 2 - r) c. Its head chunk is read by the P - 1 others, its tail by r ranks.
  for (const int ranks : {2, 3, 8}) {
    const std::int64_t chunk = 12, layers = 3;
    const Case c = uniform(ranks, chunk, 4, 3);
    PlanOptions options;
    options.deal = DealKind::head_tail;
    const std::int64_t row = layers * c.model.kv_width * 2;
    const auto exact = bytes_of(c, options, ranks);
    for (std::int64_t r = 0; r < ranks; ++r) {
      const ExchangeBytes& bytes = exact[static_cast<std::size_t>(r)];
      CHECK(bytes.forward_received == (2 * ranks - 2 - r) * chunk * row);
      CHECK(bytes.forward_sent == (ranks - 1 + r) * chunk * row);
      CHECK(bytes.gradient_received == bytes.forward_sent);
    }
    // Textbook: nothing elided, all clean rows to all.
    options.exchange = ExchangeKind::allgather;
    options.elide = {true, false, false, false, true};
    for (const ExchangeBytes& bytes : bytes_of(c, options, ranks)) {
      CHECK(bytes.forward_received == 2 * (ranks - 1) * chunk * row);
    }
    // Context parallelism moves the corrupted rows as well.
    options.sharding = Sharding::cp;
    for (const ExchangeBytes& bytes : bytes_of(c, options, ranks)) {
      CHECK(bytes.forward_received == 4 * (ranks - 1) * chunk * row);
    }
  }
}

TEST_CASE("the published figures at 262144 tokens on 8 ranks") {
  // 40 layers, 8 key-value heads of 128, bf16; three passes: forward, recomputation, gradient.
  Case c = uniform(8, 16384, 32, 40);
  c.model.kv_width = 2 * 8 * 128;
  PlanOptions options;
  options.deal = DealKind::head_tail;
  const auto gib = [&](int forwards) {
    std::vector<double> received;
    for (const ExchangeBytes& bytes : bytes_of(c, options, 8)) {
      received.push_back(
          static_cast<double>(forwards * bytes.forward_received + bytes.gradient_received) /
          (1 << 30));
    }
    return received;
  };
  const std::vector<double> exact = gib(2);
  CHECK(std::accumulate(exact.begin(), exact.end(), 0.0) / 8 == Approx(78.75));
  CHECK(*std::max_element(exact.begin(), exact.end()) == Approx(87.5));
  for (const double kept : gib(1)) CHECK(kept == Approx(52.5));

  options.exchange = ExchangeKind::allgather;
  options.elide = {true, false, false, false, true};
  for (const double all : gib(2)) CHECK(all == Approx(105));
  for (const double kept : gib(1)) CHECK(kept == Approx(70));
  options.sharding = Sharding::cp;
  for (const double both : gib(2)) CHECK(both == Approx(210));
}

TEST_CASE("work is counted once over all ranks") {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Case c = random_case(seed);
    INFO("seed " << seed << ": " << describe(c));
    const Dense dense(c);
    WorkCounts expected;
    const auto sets = dense.reader_sets();
    for (std::size_t layer = 0; layer < sets.size(); ++layer) {
      for (std::int64_t row = 0; row < c.rows(); ++row) {
        if (!sets[layer][static_cast<std::size_t>(row)]) continue;
        ++expected.layer_rows;
        expected.pairs +=
            static_cast<std::int64_t>(dense.keys_of(row, c.model.windows[layer]).size());
      }
    }
    WorkCounts sum;
    for (const StepPlan& plan : make_plans(c.batch(), c.model, {}, 3, 0, 3)) {
      const WorkCounts work = count_work(plan);
      sum.layer_rows += work.layer_rows;
      sum.key_rows += work.key_rows;
      sum.pairs += work.pairs;
      sum.head_rows += work.head_rows;
    }
    CHECK(sum.layer_rows == expected.layer_rows);
    CHECK(sum.pairs == expected.pairs);
    CHECK(sum.key_rows >= sum.layer_rows);
    CHECK(sum.head_rows == std::count(c.predicts.begin(), c.predicts.end(), 1));
  }
}
