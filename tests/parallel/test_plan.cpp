// SPDX-License-Identifier: Apache-2.0
// Plans of all ranks together against dense visibility: every visible pair once, nothing else.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "kernels/error.h"
#include "test_plan_dense.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

using Rows = std::vector<std::int64_t>;

Rows picked(const std::vector<std::int32_t>& in, const std::vector<std::int32_t>& places) {
  Rows rows;
  for (const std::int32_t place : places) rows.push_back(in.at(static_cast<std::size_t>(place)));
  return rows;
}

Rows flagged(const std::vector<std::uint8_t>& set) {
  Rows rows;
  for (std::size_t row = 0; row < set.size(); ++row) {
    if (set[row]) rows.push_back(static_cast<std::int64_t>(row));
  }
  return rows;
}

const Peer& peer_of(const LayerPlan& layer, int rank) {
  const auto found = std::find_if(layer.peers.begin(), layer.peers.end(),
                                  [rank](const Peer& peer) { return peer.rank == rank; });
  REQUIRE(found != layer.peers.end());
  return *found;
}

/// Row ids that query i reads from a buffer of key rows, part by part.
void collect(const std::vector<KeyPart>& parts, std::size_t query, const Rows& buffer, Rows& keys) {
  for (const KeyPart& part : parts) {
    REQUIRE(part.count > 0);
    REQUIRE(part.first + part.count <= static_cast<std::int64_t>(buffer.size()));
    const Interval visible = part.visible.at(query);
    if (visible.lo == visible.hi) {
      REQUIRE(visible == Interval{});
      continue;
    }
    REQUIRE(visible.lo >= 0);
    REQUIRE(visible.lo < visible.hi);
    REQUIRE(visible.hi <= part.count);
    for (std::int64_t key = visible.lo; key < visible.hi; ++key) {
      keys.push_back(buffer.at(static_cast<std::size_t>(part.first + key)));
    }
  }
}

/// One layer of all ranks: shapes, matching messages, and every query's keys exactly once.
void check_layer(const Case& c, const Dense& dense, const std::vector<StepPlan>& plans,
                 const PlanOptions& options, std::int64_t l) {
  const int ranks = static_cast<int>(plans.size());
  const std::int64_t window = c.model.windows[static_cast<std::size_t>(l)];
  for (int rank = 0; rank < ranks; ++rank) {
    INFO("layer " << l << ", rank " << rank);
    const LayerPlan& layer = plans[static_cast<std::size_t>(rank)].at(l);
    REQUIRE(std::is_sorted(layer.in.begin(), layer.in.end()));
    REQUIRE(std::is_sorted(layer.out.begin(), layer.out.end()));
    const auto clean = std::count_if(layer.in.begin(), layer.in.end(),
                                     [&](std::int32_t row) { return row < c.tokens(); });
    REQUIRE(layer.in_clean == clean);
    REQUIRE(layer.out_is_in == (layer.out.size() == layer.in.size()));
    for (std::size_t i = 0; i < layer.in.size(); ++i) {
      REQUIRE(layer.positions.at(i) == dense.position(layer.in[i]));
    }
    for (std::size_t i = 0; i < layer.out.size(); ++i) {
      REQUIRE(layer.out_positions.at(i) ==
              layer.positions.at(static_cast<std::size_t>(layer.out[i])));
    }
    const auto shared =
        static_cast<std::int64_t>(options.sharding == Sharding::csbp ? clean
                                  : options.sharding == Sharding::cp ? layer.in.size()
                                                                     : 0);
    REQUIRE(layer.shared_rows == shared);
    REQUIRE(layer.shard_rows.at(static_cast<std::size_t>(rank)) == shared);
    REQUIRE(layer.peers.size() == static_cast<std::size_t>(ranks - 1));

    std::vector<Rows> arrived(layer.peers.size());
    for (std::size_t p = 0; p < layer.peers.size(); ++p) {
      const Peer& peer = layer.peers[p];
      REQUIRE(peer.rank == (rank + 1 + static_cast<int>(p)) % ranks);
      const LayerPlan& other = plans[static_cast<std::size_t>(peer.rank)].at(l);
      const Peer& back = peer_of(other, rank);
      REQUIRE(std::is_sorted(peer.send.begin(), peer.send.end()));
      REQUIRE(std::all_of(peer.send.begin(), peer.send.end(),
                          [&](std::int32_t place) { return place < layer.shared_rows; }));
      REQUIRE(peer.receive == static_cast<std::int64_t>(back.send.size()));
      REQUIRE(layer.shard_rows.at(static_cast<std::size_t>(peer.rank)) == other.shared_rows);
      if (options.exchange != ExchangeKind::exact) REQUIRE(peer.receive == other.shared_rows);
      arrived[p] = picked(other.in, back.send);
    }

    const Rows in(layer.in.begin(), layer.in.end());
    std::vector<std::set<std::int64_t>> read(layer.peers.size());
    std::int64_t pairs = 0;
    for (std::size_t i = 0; i < layer.out.size(); ++i) {
      Rows keys;
      collect(layer.own, i, in, keys);
      for (std::size_t p = 0; p < layer.peers.size(); ++p) {
        const std::size_t before = keys.size();
        collect(layer.peers[p].parts, i, arrived[p], keys);
        read[p].insert(keys.begin() + static_cast<std::ptrdiff_t>(before), keys.end());
      }
      std::sort(keys.begin(), keys.end());
      pairs += static_cast<std::int64_t>(keys.size());
      REQUIRE(keys == dense.keys_of(in[static_cast<std::size_t>(layer.out[i])], window));
    }
    REQUIRE(layer.pairs() == pairs);
    for (std::size_t p = 0; p < layer.peers.size(); ++p) {
      if (options.exchange == ExchangeKind::exact) REQUIRE(read[p].size() == arrived[p].size());
      REQUIRE(layer.peers[p].parts.empty() == read[p].empty());
    }
  }
}

void check_plans(const Case& c, const PlanOptions& options, int ranks) {
  const Dense dense(c);
  const auto sets = reader_sets(c.batch(), c.model, options.elide);
  const std::vector<std::int32_t> owner = deal_rows(c.batch(), c.model, options, ranks);
  const std::vector<StepPlan> plans = make_plans(c.batch(), c.model, options, ranks, 0, ranks);
  REQUIRE(plans.size() == static_cast<std::size_t>(ranks));
  for (const StepPlan& plan : plans) {
    REQUIRE(plan.tokens == c.tokens());
    REQUIRE(plan.layers() == static_cast<std::int64_t>(c.model.windows.size()));
  }
  for (std::size_t l = 0; l < sets.size(); ++l) {
    const auto layer = static_cast<std::int64_t>(l);
    check_layer(c, dense, plans, options, layer);
    std::map<std::int64_t, int> computed;
    for (int rank = 0; rank < ranks; ++rank) {
      const LayerPlan& plan = plans[static_cast<std::size_t>(rank)].at(layer);
      const Rows out = picked(plan.in, plan.out);
      for (const std::int64_t row : out) {
        ++computed[row];
        if (options.sharding != Sharding::bp || row >= c.tokens()) {
          REQUIRE(owner[static_cast<std::size_t>(row)] == rank);
        }
      }
      if (l + 1 < sets.size()) {  // what a layer computes, the next one reads
        const LayerPlan& above = plans[static_cast<std::size_t>(rank)].at(layer + 1);
        REQUIRE(out == Rows(above.in.begin(), above.in.end()));
      }
    }
    Rows all;
    for (const auto& [row, times] : computed) {
      all.push_back(row);
      if (options.sharding != Sharding::bp) REQUIRE(times == 1);
    }
    REQUIRE(all == flagged(sets[l]));
  }
  std::vector<int> scored(static_cast<std::size_t>(c.rows()));
  for (const StepPlan& plan : plans) {
    const LayerPlan& last = plan.at(plan.layers() - 1);
    REQUIRE(std::is_sorted(plan.head.begin(), plan.head.end()));
    const Rows out = picked(last.in, last.out);
    REQUIRE(plan.head.size() == plan.head_rows.size());
    for (std::size_t i = 0; i < plan.head.size(); ++i) {
      REQUIRE(out.at(static_cast<std::size_t>(plan.head[i])) == plan.head_rows[i]);
      ++scored[static_cast<std::size_t>(plan.head_rows[i])];
    }
  }
  const bool clean_predicts =
      std::count(c.predicts.begin(), c.predicts.begin() + c.tokens(), 1) > 0;
  for (std::int64_t row = 0; row < c.rows(); ++row) {
    const auto r = static_cast<std::size_t>(row);
    const bool all_logits = !options.elide.unscored_logits && (row >= c.tokens() || clean_predicts);
    if (all_logits && options.sharding == Sharding::bp && row < c.tokens() && !c.predicts[r]) {
      REQUIRE(scored[r] <= 1);  // only if its owner happens to compute it
    } else {
      REQUIRE(scored[r] == (all_logits ? sets.back()[r] : c.predicts[r]));
    }
  }
}

}  // namespace

TEST_CASE("every visible pair is computed exactly once, in every sharding, deal and exchange") {
  const auto sharding = GENERATE(Sharding::csbp, Sharding::bp, Sharding::cp);
  const auto exchange = GENERATE(ExchangeKind::exact, ExchangeKind::allgather, ExchangeKind::ring);
  for (unsigned seed = 0; seed < 144; ++seed) {
    const Case c = random_case(seed);
    PlanOptions options{sharding, static_cast<DealKind>(seed / 9 % 4), exchange, {}};
    const int ranks = 1 + static_cast<int>(seed % 9);
    INFO("seed " << seed << ", " << ranks << " ranks, sharding " << int(sharding) << ", exchange "
                 << int(exchange) << ": " << describe(c));
    check_plans(c, options, ranks);
  }
}

TEST_CASE("plans are exact with any elisions off") {
  for (unsigned seed = 0; seed < 192; ++seed) {
    const Case c = random_case(seed + 1000);
    PlanOptions options;
    options.sharding = static_cast<Sharding>(seed % 3);
    options.elide.unscored_blocks = (seed & 4) == 0;
    options.elide.last_layer = (seed & 8) == 0;
    options.elide.unreached_clean = (seed & 16) == 0;
    options.elide.unscored_logits = (seed & 32) == 0;
    INFO("seed " << seed << ": " << describe(c));
    check_plans(c, options, 1 + static_cast<int>(seed % 5));
  }
}

TEST_CASE("a rank's plan does not depend on who else is planned") {
  const Case c = random_case(7);
  const std::vector<StepPlan> all = make_plans(c.batch(), c.model, {}, 5, 0, 5);
  for (int rank = 0; rank < 5; ++rank) {
    const StepPlan alone = make_plan(c.batch(), c.model, {}, 5, rank);
    const StepPlan& among = all[static_cast<std::size_t>(rank)];
    REQUIRE(alone.layer == among.layer);
    REQUIRE(alone.head_rows == among.head_rows);
    for (std::size_t d = 0; d < alone.distinct.size(); ++d) {
      REQUIRE(alone.distinct[d].in == among.distinct[d].in);
      REQUIRE(alone.distinct[d].pairs() == among.distinct[d].pairs());
    }
  }
  CHECK_THROWS_AS(make_plans(c.batch(), c.model, {}, 5, 4, 2), Error);
}

TEST_CASE("layers that are alike share a plan") {
  Case c = random_case(3);
  c.documents = {40, 1};
  c.views = 1;
  c.block_size = 4;
  c.predicts.assign(82, 1);
  std::fill_n(c.predicts.begin(), 41, std::uint8_t{0});
  c.model.windows.assign(40, 0);
  CHECK(make_plan(c.batch(), c.model, {}, 2, 0).distinct.size() == 2);  // the last one and others
  for (std::size_t l = 0; l < 40; l += 2) c.model.windows[l] = 7;
  CHECK(make_plan(c.batch(), c.model, {}, 2, 0).distinct.size() == 3);
  for (std::size_t l = 0; l < 40; l += 2) c.model.windows[l] = 40;  // no document outgrows it
  CHECK(make_plan(c.batch(), c.model, {}, 2, 0).distinct.size() == 2);
}

TEST_CASE("a micro-batch without tokens has empty plans that match") {
  Case c;
  c.model.windows = {0, 3};
  for (const StepPlan& plan : make_plans(c.batch(), c.model, {}, 3, 0, 3)) {
    CHECK(plan.at(1).in.empty());
    CHECK(plan.at(0).peers.size() == 2);
    CHECK(plan.head.empty());
  }
}

TEST_CASE("csbp never moves a corrupted key") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    const Case c = random_case(seed);
    for (const StepPlan& plan : make_plans(c.batch(), c.model, {}, 4, 0, 4)) {
      for (const LayerPlan& layer : plan.distinct) {
        for (const Peer& peer : layer.peers) {
          for (const std::int32_t place : peer.send) REQUIRE(place < layer.in_clean);
        }
      }
    }
  }
}
