// SPDX-License-Identifier: Apache-2.0
// Messages, collectives and counters against sums and patterns that every rank can work out.
#include <catch2/catch.hpp>
#include <chrono>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "parallel/communicator.h"
#include "parallel/watchdog.h"
#include "tests/mpi/place.h"

using namespace bdlm;
using Bytes = test::SharedVector<unsigned char>;

namespace {

Tensor flat(void* data, std::int64_t count, DType dtype) { return {data, 1, count, count, dtype}; }

std::int64_t message_bytes(int from, int to) {
  return (from * 7 + to * 4 + 1) % 5 * 13;
}  // some are 0

unsigned char pattern(int from, int to, std::int64_t i) {
  return static_cast<unsigned char>(from * 31 + to * 17 + i);
}

std::vector<std::int64_t> ragged_counts(int ranks) {
  std::vector<std::int64_t> counts;
  for (int r = 0; r < ranks; ++r) counts.push_back((r * 5 + 4) % 7);  // 4, 2, 0, 5, 3, 1, 6, 4
  return counts;
}

}  // namespace

TEST_CASE("messages arrive whole, cut or not, and are counted", "[test_communicator]") {
  const std::int64_t cut = GENERATE(std::int64_t{1} << 30, 8);
  auto traffic = std::make_shared<Traffic>();
  auto world = test::device_world(traffic, {.cut_bytes = cut});
  const int me = world->rank(), ranks = world->size();

  std::vector<Bytes> out, in;
  std::vector<Message> sends, receives;
  std::int64_t sent = 0, received = 0;
  out.reserve(static_cast<std::size_t>(ranks));
  in.reserve(static_cast<std::size_t>(ranks));
  for (int peer = 0; peer < ranks; ++peer) {  // to itself, too
    Bytes& message = out.emplace_back(static_cast<std::size_t>(message_bytes(me, peer)));
    for (std::size_t i = 0; i < message.size(); ++i) {
      message[i] = pattern(me, peer, static_cast<std::int64_t>(i));
    }
    in.emplace_back(static_cast<std::size_t>(message_bytes(peer, me)), 255);
    sends.push_back({message.data(), message_bytes(me, peer), peer});
    receives.push_back({in.back().data(), message_bytes(peer, me), peer});
    if (peer != me) {
      sent += message_bytes(me, peer);
      received += message_bytes(peer, me);
    }
  }
  auto transfer = world->post(receives, sends, Purpose::exchange_forward);
  transfer->progress();
  for (int peer = ranks - 1; peer >= 0; --peer) {
    transfer->wait_receive(static_cast<std::size_t>(peer));
    test::device()->synchronize();
    const Bytes& message = in[static_cast<std::size_t>(peer)];
    for (std::size_t i = 0; i < message.size(); ++i) {
      CHECK(message[i] == pattern(peer, me, static_cast<std::int64_t>(i)));
    }
  }
  transfer->wait_all();
  CHECK(traffic->at(Purpose::exchange_forward).sent == sent);
  CHECK(traffic->at(Purpose::exchange_forward).received == received);
  CHECK(traffic->at(Purpose::exchange_gradient).sent == 0);
}

TEST_CASE("messages of two purposes do not mix", "[test_communicator]") {
  auto world = test::device_world(std::make_shared<Traffic>());
  const int right = (world->rank() + 1) % world->size();
  const int left = (world->rank() + world->size() - 1) % world->size();
  test::SharedVector<int> first{1}, second{2}, got_first{0}, got_second{0};
  constexpr std::int64_t bytes = sizeof(int);
  const Message sends[] = {{first.data(), bytes, right}, {second.data(), bytes, right}};
  const Message receives[] = {{got_first.data(), bytes, left}, {got_second.data(), bytes, left}};
  auto b = world->expect({receives + 1, 1}, Purpose::exchange_gradient);
  auto a = world->post({receives, 1}, {sends, 1}, Purpose::exchange_forward);
  auto c = world->answer({sends + 1, 1}, Purpose::exchange_gradient);
  for (auto* transfer : {&a, &b, &c}) (*transfer)->wait_all();
  test::device()->synchronize();
  CHECK(got_first[0] == 1);
  CHECK(got_second[0] == 2);
}

TEST_CASE("a message of the wrong length is an error that names both ranks",
          "[test_communicator]") {
  const int length = GENERATE(4, 12);  // of 8 that are expected
  auto world = mpi_world(std::make_shared<Traffic>(), {.name = "wrong length"});
  if (world->size() == 1) return;
  Bytes data(16);
  if (world->rank() == 0) {
    const Message message{data.data(), length, 1};
    world->post({}, {&message, 1}, Purpose::exchange_forward)->wait_all();
  } else if (world->rank() == 1) {
    const Message message{data.data(), 8, 0};
    auto transfer = world->post({&message, 1}, {}, Purpose::exchange_forward);
    CHECK_THROWS_WITH(transfer->wait_receive(0),
                      Catch::Contains("wrong length") && Catch::Contains("rank 1") &&
                          Catch::Contains(length < 8 ? "received 4" : "MPI_ERR_TRUNCATE"));
  }
  world->barrier();
}

TEST_CASE("an exception does not wait for messages that never come", "[test_communicator]") {
  static test::SharedVector<int> never{0};
  auto world = test::device_world(std::make_shared<Traffic>());
  if (world->size() == 1) return;
  const auto lose_one = [&] {
    const Message message{never.data(), sizeof(int), (world->rank() + 1) % world->size()};
    auto transfer = world->post({&message, 1}, {}, Purpose::exchange_forward);
    throw std::runtime_error("something else went wrong");
  };
  CHECK_THROWS_AS(lose_one(), std::runtime_error);
}

TEMPLATE_TEST_CASE("reduce_scatter adds ragged parts", "[test_communicator]", float, double) {
  const std::int64_t cut = GENERATE(std::int64_t{1} << 30, 16);
  const bool in_place = GENERATE(true, false);
  auto traffic = std::make_shared<Traffic>();
  auto world = test::device_world(traffic, {.cut_bytes = cut});
  const int me = world->rank(), ranks = world->size();
  const auto counts = ragged_counts(ranks);
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t own = counts[static_cast<std::size_t>(me)];
  const std::int64_t offset = std::accumulate(counts.begin(), counts.begin() + me, std::int64_t{0});

  test::SharedVector<TestType> whole(static_cast<std::size_t>(total)),
      apart(static_cast<std::size_t>(own));
  for (std::int64_t i = 0; i < total; ++i) {
    whole[static_cast<std::size_t>(i)] = static_cast<TestType>((me + 1) * (i + 1));
  }
  const auto untouched = whole;
  const DType dtype = dtype_of<TestType>();
  TestType* mine = in_place ? whole.data() + offset : apart.data();
  world->reduce_scatter(flat(whole.data(), total, dtype), counts, flat(mine, own, dtype),
                        Purpose::gradient_reduce);
  test::device()->synchronize();
  for (std::int64_t i = 0; i < own; ++i) {
    CHECK(mine[i] == static_cast<TestType>(ranks * (ranks + 1) / 2 * (offset + i + 1)));
  }
  if (!in_place) CHECK(whole == untouched);
  const auto element = static_cast<std::int64_t>(sizeof(TestType));
  CHECK(traffic->at(Purpose::gradient_reduce).sent == (total - own) * element);
  CHECK(traffic->at(Purpose::gradient_reduce).received == (ranks - 1) * own * element);
}

TEST_CASE("reduce_scatter gives the same bits every time", "[test_communicator]") {
  auto world = test::device_world(std::make_shared<Traffic>());
  const std::int64_t each = 50'021, total = each * world->size();
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world->size()), each);
  test::SharedVector<float> whole(static_cast<std::size_t>(total));
  for (std::size_t i = 0; i < whole.size(); ++i) {
    whole[i] =
        1.0f / static_cast<float>(1 + (i * 7919 + static_cast<std::size_t>(world->rank())) % 1013);
  }
  test::SharedVector<float> first(static_cast<std::size_t>(each)), again(first.size());
  for (test::SharedVector<float>* mine : {&first, &again}) {
    world->reduce_scatter(flat(whole.data(), total, DType::f32), counts,
                          flat(mine->data(), each, DType::f32), Purpose::gradient_reduce);
  }
  test::device()->synchronize();
  CHECK(first == again);
}

TEST_CASE("sums in bf16 and wrong counts are refused before anything is sent",
          "[test_communicator]") {
  auto world = test::device_world(std::make_shared<Traffic>());
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(world->size()), 1);
  test::SharedVector<double> data(counts.size());
  const Tensor whole = flat(data.data(), world->size(), DType::bf16);
  CHECK_THROWS_WITH(
      world->reduce_scatter(whole, counts, whole.slice_cols(world->rank(), 1), Purpose::control),
      Catch::Contains("bf16"));
  CHECK_THROWS_WITH(world->all_gather(whole, counts, whole.slice_cols(0, 0), Purpose::control),
                    Catch::Contains("all_gather"));
}

TEST_CASE("all_gather collects ragged parts of any type", "[test_communicator]") {
  const std::int64_t cut = GENERATE(std::int64_t{1} << 30, 8);
  const bool in_place = GENERATE(true, false);
  const DType dtype = GENERATE(DType::bf16, DType::f32, DType::f64);
  auto traffic = std::make_shared<Traffic>();
  auto world = test::device_world(traffic, {.cut_bytes = cut});
  const int me = world->rank(), ranks = world->size();
  const auto counts = ragged_counts(ranks);
  const auto element = static_cast<std::int64_t>(size_of(dtype));
  const std::int64_t total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t own = counts[static_cast<std::size_t>(me)];
  const std::int64_t offset = std::accumulate(counts.begin(), counts.begin() + me, std::int64_t{0});

  Bytes whole(static_cast<std::size_t>(total * element), 255);
  Bytes apart(static_cast<std::size_t>(own * element));
  unsigned char* mine = in_place ? whole.data() + offset * element : apart.data();
  for (std::int64_t i = 0; i < own * element; ++i) mine[i] = pattern(me, 0, i);
  world->all_gather(flat(mine, own, dtype), counts, flat(whole.data(), total, dtype),
                    Purpose::parameter_gather);
  test::device()->synchronize();
  std::size_t at = 0;
  for (int r = 0; r < ranks; ++r) {
    for (std::int64_t i = 0; i < counts[static_cast<std::size_t>(r)] * element; ++i) {
      CHECK(whole[at++] == pattern(r, 0, i));
    }
  }
  CHECK(traffic->at(Purpose::parameter_gather).sent == (ranks - 1) * own * element);
  CHECK(traffic->at(Purpose::parameter_gather).received == (total - own) * element);
}

TEST_CASE("host values", "[test_communicator]") {
  const std::int64_t cut = GENERATE(std::int64_t{1} << 30, 8);
  auto world = test::device_world(std::make_shared<Traffic>(), {.cut_bytes = cut});
  const int me = world->rank(), ranks = world->size();

  std::array<double, 2> sums{me + 0.5, -1.0 * me};
  world->all_reduce(sums, Reduce::sum);
  CHECK(sums[0] == ranks * (ranks - 1) / 2.0 + ranks * 0.5);
  CHECK(sums[1] == -ranks * (ranks - 1) / 2.0);
  std::array<std::int64_t, 1> most{(std::int64_t{1} << 40) + me}, least = most;
  world->all_reduce(most, Reduce::max);
  world->all_reduce(least, Reduce::min);
  CHECK(most[0] == (std::int64_t{1} << 40) + ranks - 1);
  CHECK(least[0] == std::int64_t{1} << 40);

  const int root = ranks - 1;
  std::string text = me == root ? "a text longer than one piece" : "old";
  world->broadcast(text, root);
  CHECK(text == "a text longer than one piece");
  std::string nothing = me == root ? "" : "old";
  world->broadcast(nothing, root);
  CHECK(nothing.empty());

  const auto all = world->gather(std::string(static_cast<std::size_t>(11 * me % 23), 'a'), root);
  REQUIRE(all.size() == static_cast<std::size_t>(me == root ? ranks : 0));
  for (std::size_t r = 0; r < all.size(); ++r) CHECK(all[r] == std::string(11 * r % 23, 'a'));
  world->barrier();
}

TEST_CASE("a split groups by colour and orders by key", "[test_communicator]") {
  auto world = mpi_world(std::make_shared<Traffic>());
  const int me = world->rank(), ranks = world->size();
  auto half = mpi_split(me % 2, -me, std::make_shared<Traffic>(), {.name = "half"});
  CHECK(half->size() == (ranks + 1 - me % 2) / 2);
  CHECK(half->rank() == half->size() - 1 - me / 2);
  std::array<std::int64_t, 1> count{1};
  half->all_reduce(count, Reduce::sum);
  CHECK(count[0] == half->size());
}

TEST_CASE("the watchdog names the operation, the group and the late rank", "[test_communicator]") {
  auto traffic = std::make_shared<Traffic>();
  traffic->activity = std::make_shared<Activity>();
  auto world = mpi_world(traffic, {.name = "late group"});
  const int me = world->rank(), last = world->size() - 1;
  if (last == 0) return;
  world->barrier();

  std::string report;  // read after the watchdog's end only
  {
    Watchdog watchdog(traffic->activity, 0.2, me,
                      [&report](const std::string& message) { report = message; });
    int value = 7;
    const auto pause = std::chrono::milliseconds(700);
    if (me == last) {
      std::this_thread::sleep_for(pause);  // busy, but waiting for nobody: no message of its own
      const Message message{&value, sizeof value, 0};
      world->post({}, {&message, 1}, Purpose::exchange_forward)->wait_all();
    } else if (me == 0) {
      const Message message{&value, sizeof value, last};
      world->post({&message, 1}, {}, Purpose::exchange_forward)->wait_receive(0);
    }
  }
  if (me == 0) {
    CHECK_THAT(report, Catch::Contains("rank 0 on") && Catch::Contains("wait_receive") &&
                           Catch::Contains("late group") && Catch::Contains("exchange_forward") &&
                           Catch::Contains("for rank " + std::to_string(last) + ":") &&
                           Catch::Contains("before it: late group 1 barrier"));
  } else {
    CHECK(report.empty());
  }
}
