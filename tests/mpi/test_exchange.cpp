// SPDX-License-Identifier: Apache-2.0
// Every row that arrives equals its owner's, and gradients come back as exact sums (small
// integers), in all transports, on hand-made plans with ragged, partial and empty shards and on
// real ones.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "parallel/exchange.h"
#include "tests/mpi/place.h"

using namespace bdlm;

namespace {

constexpr std::int64_t width = 6;

double key_value(std::int64_t row_id, std::int64_t column) {
  return static_cast<double>((row_id * 7 + column * 3) % 251);  // exact in bf16
}

double gradient_of(int reader, std::int64_t row_id, std::int64_t column) {
  return static_cast<double>((reader * 5 + row_id * 3 + column) % 13 - 6);
}

/// Rows of `owner` that `reader` is sent: positions in the owner's `in`.
std::vector<std::int32_t> rows_sent(const std::vector<LayerPlan>& plans, ExchangeKind kind,
                                    int owner, int reader) {
  const LayerPlan& plan = plans[static_cast<std::size_t>(owner)];
  if (kind == ExchangeKind::ring) {  // everything passes through everybody
    std::vector<std::int32_t> all(static_cast<std::size_t>(plan.shared_rows));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  for (const Peer& peer : plan.peers) {
    if (peer.rank == reader) return peer.send;
  }
  return {};
}

/// Ragged shards: rank 2 has no row at all, others have rows that are not shared; under `exact`
/// readers are sent all, some or none of a shard.
std::vector<LayerPlan> hand_made(ExchangeKind kind, int ranks) {
  std::vector<LayerPlan> plans(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> shard_rows;
  std::int32_t id = 0;
  for (int r = 0; r < ranks; ++r) {
    LayerPlan& plan = plans[static_cast<std::size_t>(r)];
    plan.shared_rows = (r * 5 + 4) % 7;
    shard_rows.push_back(plan.shared_rows);
    for (std::int64_t i = 0; i < plan.shared_rows + (r % 3 == 2 ? 0 : 2); ++i) {
      plan.in.push_back(id++);
    }
    plan.in_clean = plan.shared_rows;
  }
  for (int r = 0; r < ranks; ++r) {
    LayerPlan& plan = plans[static_cast<std::size_t>(r)];
    plan.shard_rows = shard_rows;
    for (int step = 1; step < ranks; ++step) {
      Peer peer{.rank = (r + step) % ranks, .send = {}, .receive = 0, .parts = {}};
      for (std::int32_t i = 0; i < plan.shared_rows; ++i) {
        const int choice = (r + 2 * peer.rank) % 4;  // none, all, every second, a run
        const bool read = choice == 1 || (choice == 2 && i % 2 == 0) || (choice == 3 && i >= 1);
        if (kind != ExchangeKind::exact || read) peer.send.push_back(i);
      }
      plan.peers.push_back(peer);
    }
  }
  for (int r = 0; r < ranks; ++r) {
    for (Peer& peer : plans[static_cast<std::size_t>(r)].peers) {
      peer.receive = static_cast<std::int64_t>(rows_sent(plans, kind, peer.rank, r).size());
    }
  }
  return plans;
}

template <class T>
struct Matrix {
  test::SharedVector<T> data;
  Tensor view;

  Matrix(std::int64_t rows, std::int64_t stride) : data(static_cast<std::size_t>(rows * stride)) {
    view = {data.data(), rows, width, stride, dtype_of<T>()};
  }
  T& at(std::int64_t row, std::int64_t column) {
    return data[static_cast<std::size_t>(row * view.stride + column)];
  }
};

template <class T>
double number(const Tensor& x, std::int64_t row, std::int64_t column) {
  const T value = x.as<T>()[row * x.stride + column];
  if constexpr (std::is_same_v<T, double>) return value;
  return static_cast<float>(value);
}

/// Forward and backward of one layer, checked row by row. T: compute, A: accumulate.
template <class T, class A>
void check_layer(Device& device, Communicator& group, Exchange& exchange, ExchangeKind kind,
                 const std::vector<LayerPlan>& plans, std::int64_t stride, bool keep) {
  const int me = group.rank(), ranks = group.size();
  const LayerPlan& plan = plans[static_cast<std::size_t>(me)];
  const auto rows = static_cast<std::int64_t>(plan.in.size());
  Matrix<T> kv(rows, stride);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      kv.at(i, c) =
          static_cast<T>(static_cast<A>(key_value(plan.in[static_cast<std::size_t>(i)], c)));
    }
  }

  const auto check_shard = [&](const Shard& shard) {
    const auto sent = rows_sent(plans, kind, shard.peer->rank, me);
    const auto& owner = plans[static_cast<std::size_t>(shard.peer->rank)];
    REQUIRE(shard.kv.rows == static_cast<std::int64_t>(sent.size()));
    device.synchronize();
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < sent.size(); ++i) {
      for (std::int64_t c = 0; c < width; ++c) {
        wrong += number<T>(shard.kv, static_cast<std::int64_t>(i), c) !=
                 key_value(owner.in[static_cast<std::size_t>(sent[i])], c);
      }
    }
    CHECK(wrong == 0);
  };
  std::vector<int> expected;  // ranks with rows, in the transport's order
  for (int step = 1; step < ranks; ++step) {
    const int peer = (me + (kind == ExchangeKind::ring ? ranks - step : step)) % ranks;
    if (!rows_sent(plans, kind, peer, me).empty()) expected.push_back(peer);
  }

  exchange.begin(plan, kv.view, Purpose::exchange_forward);
  std::vector<int> seen;
  while (const auto shard = exchange.next()) {
    check_shard(*shard);
    CHECK(shard->gradient.data == nullptr);
    seen.push_back(shard->peer->rank);
    exchange.progress();
  }
  CHECK(seen == expected);

  if (keep) {
    exchange.resume(plan, exchange.keep());
  } else {
    exchange.begin(plan, kv.view, Purpose::exchange_recompute);
  }
  exchange.begin_gradients();
  seen.clear();
  while (const auto shard = exchange.next()) {
    check_shard(*shard);
    seen.push_back(shard->peer->rank);
    const auto sent = rows_sent(plans, kind, shard->peer->rank, me);
    const auto& owner = plans[static_cast<std::size_t>(shard->peer->rank)];
    Matrix<A> mine(shard->kv.rows, width);
    for (std::size_t i = 0; i < sent.size(); ++i) {
      for (std::int64_t c = 0; c < width; ++c) {
        mine.at(static_cast<std::int64_t>(i), c) =
            static_cast<A>(gradient_of(me, owner.in[static_cast<std::size_t>(sent[i])], c));
      }
    }
    device.add(mine.view, shard->gradient);
    exchange.progress();
    exchange.give_back(*shard);
  }
  CHECK(seen == expected);

  Matrix<A> dkv(rows, stride);
  Matrix<A> truth(rows, stride);
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t c = 0; c < width; ++c) {
      truth.at(i, c) = dkv.at(i, c) = static_cast<A>(100 + i);  // what the own queries gave
    }
  }
  for (int reader = 0; reader < ranks; ++reader) {
    if (reader == me) continue;
    for (const std::int32_t row : rows_sent(plans, kind, me, reader)) {
      for (std::int64_t c = 0; c < width; ++c) {
        truth.at(row, c) +=
            static_cast<A>(gradient_of(reader, plan.in[static_cast<std::size_t>(row)], c));
      }
    }
  }
  exchange.end_gradients(dkv.view);
  device.synchronize();
  CHECK(dkv.data == truth.data);
}

/// Rows that a rank sends and receives in a pass, and rows of gradients (ring: of their sums).
struct RowCounts {
  std::int64_t sent = 0, received = 0, gradient_sent = 0, gradient_received = 0;
};

RowCounts count_rows(const std::vector<LayerPlan>& plans, ExchangeKind kind, int me) {
  const int ranks = static_cast<int>(plans.size());
  RowCounts n;
  const auto rows = [&](int r) { return plans[static_cast<std::size_t>(r)].shared_rows; };
  for (int peer = 0; peer < ranks; ++peer) {
    if (kind == ExchangeKind::ring) {
      // The shard of the right neighbour ends here; the sum of the left one starts here.
      n.sent += peer == (me + 1) % ranks ? 0 : rows(peer);
      n.received += peer == me ? 0 : rows(peer);
      n.gradient_sent += peer == me ? 0 : rows(peer);
      n.gradient_received += peer == (me + ranks - 1) % ranks ? 0 : rows(peer);
    } else if (peer != me) {
      const auto out = static_cast<std::int64_t>(rows_sent(plans, kind, me, peer).size());
      const auto in = static_cast<std::int64_t>(rows_sent(plans, kind, peer, me).size());
      n.sent += out;
      n.received += in;
      n.gradient_sent += in;
      n.gradient_received += out;
    }
  }
  return n;
}

template <class T, class A>
void check_hand_made(ExchangeKind kind, std::int64_t stride, bool keep) {
  auto traffic = std::make_shared<Traffic>();
  auto group = test::device_world(traffic, {.name = "csbp", .cut_bytes = 32});
  const auto device = test::device();
  const auto plans = hand_made(kind, group->size());
  auto exchange = make_exchange(kind, *device, *group, width, dtype_of<T>());
  const RowCounts n = count_rows(plans, kind, group->rank());
  std::int64_t peak = 0;
  for (int layer = 1; layer <= 3; ++layer) {
    check_layer<T, A>(*device, *group, *exchange, kind, plans, stride, keep);
    const auto element = static_cast<std::int64_t>(sizeof(T));
    const std::int64_t back = kind == ExchangeKind::ring ? sizeof(A) : sizeof(T);
    CHECK(traffic->at(Purpose::exchange_forward).sent == layer * n.sent * width * element);
    CHECK(traffic->at(Purpose::exchange_forward).received == layer * n.received * width * element);
    CHECK(traffic->at(Purpose::exchange_recompute).sent ==
          (keep ? 0 : layer * n.sent * width * element));
    CHECK(traffic->at(Purpose::exchange_gradient).sent == layer * n.gradient_sent * width * back);
    CHECK(traffic->at(Purpose::exchange_gradient).received ==
          layer * n.gradient_received * width * back);
    const MemoryUse memory = device->memory();
    if (layer == 1) peak = memory.peak;
    CHECK(memory.peak == peak);
    CHECK(std::accumulate(memory.bytes.begin(), memory.bytes.end(), std::int64_t{0}) == 0);
  }
}

}  // namespace

TEST_CASE("rows and gradients reach their places in every transport", "[test_exchange]") {
  const ExchangeKind kind =
      GENERATE(ExchangeKind::exact, ExchangeKind::allgather, ExchangeKind::ring);
  const bool keep = GENERATE(false, true);
  const std::int64_t stride = width + GENERATE(0, 3);
  if (keep && kind == ExchangeKind::ring) return;
  check_hand_made<double, double>(kind, stride, keep);
  check_hand_made<float, float>(kind, stride, keep);
  check_hand_made<bfloat16, float>(kind, stride, keep);
}

TEST_CASE("gradients are added in rank order, in the accumulate type", "[test_exchange]") {
  auto group = test::device_world(std::make_shared<Traffic>());
  const int me = group->rank(), ranks = group->size();
  if (ranks < 3) return;
  const auto device = test::device();
  // All read the one row of the last rank. 2^24 + 1 + 1 ... in f32 depends on the order: from rank
  // 0 on, each 1 is lost; with the large one last they would count.
  const int owner = ranks - 1;
  LayerPlan plan;
  if (me == owner) plan.in = {0};
  plan.shared_rows = me == owner ? 1 : 0;
  for (int step = 1; step < ranks; ++step) {
    const int peer = (me + step) % ranks;
    plan.peers.push_back(
        {.rank = peer,
         .send = me == owner ? std::vector<std::int32_t>{0} : std::vector<std::int32_t>{},
         .receive = peer == owner ? 1 : 0,
         .parts = {}});
  }
  auto exchange = make_exchange(ExchangeKind::exact, *device, *group, 1, DType::f32);
  test::SharedVector<float> kv{3}, value{me == 0 ? 16777216.0f : 1.0f}, dkv{0};
  const std::int64_t rows = me == owner ? 1 : 0;
  exchange->begin(plan, {kv.data(), rows, 1, 1, DType::f32}, Purpose::exchange_forward);
  exchange->begin_gradients();
  while (const auto shard = exchange->next()) {
    device->add({value.data(), 1, 1, 1, DType::f32}, shard->gradient);
    exchange->give_back(*shard);
  }
  exchange->end_gradients({dkv.data(), rows, 1, 1, DType::f32});
  device->synchronize();
  if (me == owner) CHECK(dkv[0] == 16777216.0f);
}

TEST_CASE("steps out of order are refused", "[test_exchange]") {
  auto group = test::device_world(std::make_shared<Traffic>());
  const auto device = test::device();
  const ExchangeKind kind = GENERATE(ExchangeKind::allgather, ExchangeKind::ring);
  const auto plans = hand_made(kind, group->size());
  const LayerPlan& plan = plans[static_cast<std::size_t>(group->rank())];
  const auto rows = static_cast<std::int64_t>(plan.in.size());
  Matrix<float> kv(rows, width);
  auto exchange = make_exchange(kind, *device, *group, width, DType::f32);
  CHECK_THROWS_AS(exchange->next(), Error);
  CHECK_THROWS_AS(exchange->begin_gradients(), Error);
  Tensor narrow = kv.view;
  ++narrow.rows;
  CHECK_THROWS_AS(exchange->begin(plan, narrow, Purpose::exchange_forward), Error);
  if (kind == ExchangeKind::ring) CHECK_THROWS_AS(exchange->resume(plan, {}), Error);

  exchange->begin(plan, kv.view, Purpose::exchange_forward);
  exchange->begin_gradients();
  while (const auto shard = exchange->next()) {
    CHECK_THROWS_WITH(exchange->next(), Catch::Contains("not given back"));
    exchange->give_back(*shard);
    CHECK_THROWS_AS(exchange->give_back(*shard), Error);
  }
  exchange->end_gradients(kv.view);
  CHECK_THROWS_AS(exchange->end_gradients(kv.view), Error);
}

TEST_CASE("plans of packed rows: rows, sums and predicted bytes", "[test_exchange]") {
  const ExchangeKind kind =
      GENERATE(ExchangeKind::exact, ExchangeKind::allgather, ExchangeKind::ring);
  const Sharding sharding = GENERATE(Sharding::csbp, Sharding::cp, Sharding::bp);
  const DealKind deal = GENERATE(DealKind::balanced, DealKind::head_tail, DealKind::round_robin);
  auto traffic = std::make_shared<Traffic>();
  auto group = test::device_world(traffic);
  const auto device = test::device();

  INFO("exchange " << static_cast<int>(kind) << ", sharding " << static_cast<int>(sharding)
                   << ", deal " << static_cast<int>(deal));
  const std::vector<std::int64_t> documents{37, 5, 64, 1, 23};
  const std::int64_t tokens = std::accumulate(documents.begin(), documents.end(), std::int64_t{0});
  std::vector<std::uint8_t> predicts(static_cast<std::size_t>(2 * tokens), 0);
  for (std::size_t i = static_cast<std::size_t>(tokens); i < predicts.size(); ++i) {
    predicts[i] = i % 3 == 0 && i % 29 > 9;  // some blocks have no target
  }
  const BatchShape batch{.documents = documents,
                         .views = 1,
                         .block_size = 4,
                         .causal_clean = false,
                         .predicts = predicts};
  const LayerShapes model{.windows = {0, 9, 0}, .kv_width = width, .row_cost = 50, .pair_cost = 1};
  const PlanOptions options{.sharding = sharding, .deal = deal, .exchange = kind, .elide = {}};
  const auto steps = make_plans(batch, model, options, group->size(), 0, group->size());
  auto exchange = make_exchange(kind, *device, *group, width, DType::bf16);
  for (std::int64_t l = 0; l < static_cast<std::int64_t>(model.windows.size()); ++l) {
    std::vector<LayerPlan> plans;
    for (const StepPlan& step : steps) plans.push_back(step.at(l));
    check_layer<bfloat16, float>(*device, *group, *exchange, kind, plans, width, false);
  }
  const int me = group->rank();
  const ExchangeBytes predicted =
      exchange_bytes(steps[static_cast<std::size_t>(me)], model, options, me, 2, 4);
  CHECK(traffic->at(Purpose::exchange_forward).sent == predicted.forward_sent);
  CHECK(traffic->at(Purpose::exchange_forward).received == predicted.forward_received);
  CHECK(traffic->at(Purpose::exchange_recompute).sent == predicted.forward_sent);
  CHECK(traffic->at(Purpose::exchange_recompute).received == predicted.forward_received);
  CHECK(traffic->at(Purpose::exchange_gradient).sent == predicted.gradient_sent);
  CHECK(traffic->at(Purpose::exchange_gradient).received == predicted.gradient_received);
  if (sharding == Sharding::bp) CHECK(predicted.forward_sent == 0);
}
