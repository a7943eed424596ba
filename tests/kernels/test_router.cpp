// SPDX-License-Identifier: Apache-2.0
// A mixture's router: the choice of experts, their weights, balance sums, gradients.
#include "kernels/counting_device.h"
#include "kernels/reference/router.h"
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

/// experts, chosen, sigmoid, groups, best groups, normalise, scaling
const std::vector<Router> routers{
    {1, 1, false, 1, 1, true, 1},       {5, 5, false, 1, 1, true, 1},
    {60, 4, false, 1, 1, false, 1},     {128, 8, false, 1, 1, true, 1},
    {33, 1, true, 1, 1, true, 2.5},     {8, 8, true, 4, 4, false, 1.5},
    {256, 8, true, 8, 4, true, 2.5},    {132, 16, true, 4, 1, true, 1},
    {512, 16, true, 1, 1, true, 1}};
constexpr std::int64_t row_counts[] = {0, 23, 67};

/// Rows of one packed row after another, some of none, and one packed row without any.
std::vector<std::int32_t> packed_rows(std::int64_t rows) {
  std::vector<std::int32_t> packed;
  for (std::int64_t i = 0; i < rows; ++i) {
    packed.push_back(i % 5 == 3 ? -1 : i < rows / 3 ? 2 : 0);
  }
  return packed;
}

/// Sums and what probabilities are: the types of the router's own matrices.
template <class Body>
void on_sums(Body&& body) {
  on_devices([&](Device& device) {
    body.template operator()<double>(device);
    body.template operator()<float>(device);
  });
}

std::string text_of(const Router& r) {
  return fmt::format("{} of {} experts, {} of {} groups, sigmoid {}", r.chosen, r.experts,
                     r.best_groups, r.groups, r.sigmoid);
}

}  // namespace

TEST_CASE("choose_experts: probabilities and the choice") {
  on_sums([]<class A>(Device& device) {
    for (const Router& router : routers) {
      for (const std::int64_t rows : row_counts) {
        INFO(text_of(router));
        auto logits = TestMatrix(dtype_of<A>(), rows, router.experts, 3).random(1, 2);
        // Equals: the first is taken, of experts and of groups.
        if (rows > 3) {
          for (std::int64_t e = 0; e < router.experts; ++e) {
            logits.set(2, e, 0.0);
            logits.set(3, e, static_cast<double>(e * 7 % 3));
          }
        }
        const auto bias = TestMatrix(dtype_of<A>(), 1, router.experts).random(2, 0.1);
        TestMatrix p(dtype_of<A>(), rows, router.experts, 1);
        const auto plain = [&]<class B>(B) {
          reference::Matrix<B> r(rows, router.experts);
          reference::router_probabilities(router, logits.values<B>(), r);
          return r;
        };
        for (const bool biased : {false, true}) {
          std::vector<std::int32_t> chosen(std::size_t(rows * router.chosen), -1);
          device.choose_experts(router, logits, biased ? bias.tensor() : Tensor{}, p, chosen);
          check_close("probabilities", p, plain(Truth{}), plain(A{}));
          // Of the device's own probabilities: what is nearly equal may be in another order.
          CHECK(chosen == reference::choose_experts(router, p.values<A>(),
                                                    biased ? bias.values<A>()
                                                           : reference::Matrix<A>()));
        }
        TestMatrix again =
            TestMatrix(dtype_of<A>(), rows, router.experts, 1).from(logits.values<double>());
        device.router_probabilities(router, again, again);
        CHECK(again.bytes() == p.bytes());
      }
    }
  });
}

TEST_CASE("choose_experts: by hand") {
  on_devices([](Device& device) {
    // Two of four groups of three. Group 2 has the best expert, 1 and 3 have more together.
    const Router router{12, 3, true, 4, 2, true, 1};
    TestMatrix logits = TestMatrix(DType::f64, 1, 12).filled(-5);
    const double group[] = {1, 1, 3, -5, 1, 2}, at[] = {3, 5, 6, 7, 9, 11};
    for (int n = 0; n < 6; ++n) logits.set(0, static_cast<std::int64_t>(at[n]), group[n]);
    TestMatrix p(DType::f64, 1, 12);
    std::vector<std::int32_t> chosen(3);
    device.choose_experts(router, logits, Tensor{}, p, chosen);
    CHECK(chosen == std::vector<std::int32_t>{11, 3, 5});

    // A bias changes the choice and not the probabilities.
    TestMatrix bias = TestMatrix(DType::f64, 1, 12).filled(0);
    bias.set(0, 0, 3.0);
    device.choose_experts(router, logits, bias, p, chosen);
    CHECK(chosen == std::vector<std::int32_t>{0, 11, 9});
    CHECK(p.get(0, 0) == Approx(1 / (1 + std::exp(5.0))));
  });
}

TEST_CASE("choose_experts: what is no number is chosen last and once") {
  on_devices([](Device& device) {
    for (const bool sigmoid : {false, true}) {
      const Router router{6, 3, sigmoid, sigmoid ? 3 : 1, sigmoid ? 2 : 1, true, 1};
      TestMatrix logits = TestMatrix(DType::f32, 2, 6).filled(NAN);
      logits.set(1, 4, 1.0);
      logits.set(1, 5, 2.0);
      TestMatrix p(DType::f32, 2, 6);
      std::vector<std::int32_t> chosen(6);
      device.choose_experts(router, logits, Tensor{}, p, chosen);
      const std::vector<std::int32_t> expected =
          sigmoid ? std::vector<std::int32_t>{0, 1, 2, 5, 4, 0}
                  : std::vector<std::int32_t>{0, 1, 2, 0, 1, 2};
      CHECK(chosen == expected);
    }
  });
}

TEST_CASE("choose_experts tells that it waits") {
  on_devices([](Device& device) {
    std::vector<bool> told;
    device.waiting = [&](bool begins) { told.push_back(begins); };
    const auto logits = TestMatrix(DType::f32, 2, 4).random(1);
    TestMatrix p(DType::f32, 2, 4);
    std::vector<std::int32_t> chosen(2);
    const Tensor in = logits, out = p;
    device.choose_experts({4, 1}, in, Tensor{}, out, chosen);
    device.waiting = {};
    if (device.shares_host_memory()) {
      CHECK(told.empty());
    } else {
      CHECK(told == std::vector<bool>{true, false});
    }
  });
}

TEST_CASE("expert_weights and router_backward") {
  on_sums([]<class A>(Device& device) {
    const DType type = dtype_of<A>();
    for (const Router& router : routers) {
      for (const std::int64_t rows : row_counts) {
        INFO(text_of(router));
        TestMatrix p = TestMatrix(type, rows, router.experts, 2).random(1);
        device.router_probabilities(router, p, p);
        const auto chosen =
            reference::choose_experts(router, p.values<A>(), reference::Matrix<A>());
        const auto list = upload(device, chosen);
        TestMatrix weights(type, rows, router.chosen, 1);
        const auto forward = [&]<class B>(B) {
          reference::Matrix<B> r(rows, router.chosen);
          reference::expert_weights(router, p.values<B>(), chosen, r);
          return r;
        };
        device.expert_weights(router, p, list.data, weights);
        check_close("weights", weights, forward(Truth{}), forward(A{}));

        const auto packed = packed_rows(rows);
        const auto packed_list = upload(device, packed);
        const auto dweights = TestMatrix(type, rows, router.chosen, 3).random(2);
        const auto balance = TestMatrix(type, 3, router.experts, 1).random(3);
        for (const bool balanced : {false, true}) {
          const auto backward = [&]<class B>(B) {
            reference::Matrix<B> r(rows, router.experts);
            reference::router_backward(router, p.values<B>(), chosen, dweights.values<B>(),
                                       balanced ? balance.values<B>() : reference::Matrix<B>(),
                                       packed, r);
            return r;
          };
          const auto run = [&](const TestMatrix& from, const TestMatrix& to) {
            device.router_backward(router, from, list.data, dweights,
                                   balanced ? balance.tensor() : Tensor{},
                                   balanced ? packed_list.data : nullptr, to);
          };
          TestMatrix dlogits(type, rows, router.experts, 2);
          run(p, dlogits);
          check_close("dlogits", dlogits, backward(Truth{}), backward(A{}));
          TestMatrix over = TestMatrix(type, rows, router.experts, 2).from(p.values<double>());
          run(over, over);
          CHECK(over.bytes() == dlogits.bytes());
        }
      }
    }
  });
}

TEST_CASE("router_backward: gradients are those of weights and probabilities") {
  on_devices([](Device& device) {
    for (const Router& router :
         {Router{7, 3, false, 1, 1, true, 1}, Router{7, 3, false, 1, 1, false, 1},
          Router{8, 2, true, 4, 2, true, 2.5}, Router{8, 3, true, 1, 1, false, 2.5}}) {
      INFO(text_of(router));
      const std::int64_t rows = 3;
      TestMatrix logits = TestMatrix(DType::f64, rows, router.experts).random(1);
      const auto dweights = TestMatrix(DType::f64, rows, router.chosen).random(2);
      const auto balance = TestMatrix(DType::f64, 2, router.experts).random(3);
      const std::vector<std::int32_t> packed{1, -1, 0};
      const auto packed_list = upload(device, packed);
      TestMatrix p(DType::f64, rows, router.experts), weights(DType::f64, rows, router.chosen);
      std::vector<std::int32_t> chosen(std::size_t(rows * router.chosen));
      device.choose_experts(router, logits, Tensor{}, p, chosen);
      const auto list = upload(device, chosen);
      TestMatrix dlogits(DType::f64, rows, router.experts);
      device.router_backward(router, p, list.data, dweights, balance, packed_list.data, dlogits);
      check_gradient("logits", logits, dlogits, [&] {
        reference::Matrix<double> prob(rows, router.experts), weight(rows, router.chosen);
        reference::router_probabilities(router, logits.values<double>(), prob);
        reference::expert_weights(router, prob, chosen, weight);
        double sum = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
          for (std::int64_t s = 0; s < router.chosen; ++s) sum += weight(i, s) * dweights.get(i, s);
          if (packed[std::size_t(i)] < 0) continue;
          for (std::int64_t e = 0; e < router.experts; ++e) {
            sum += prob(i, e) * balance.get(packed[std::size_t(i)], e);
          }
        }
        return sum;
      });
    }
  });
}

TEST_CASE("balance_sums adds to each packed row") {
  on_sums([]<class A>(Device& device) {
    for (const Router& router : routers) {
      for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{203}}) {
        INFO(text_of(router));
        TestMatrix p = TestMatrix(dtype_of<A>(), rows, router.experts, 2).random(1);
        device.router_probabilities(router, p, p);
        const auto chosen =
            reference::choose_experts(router, p.values<A>(), reference::Matrix<A>());
        const auto packed = packed_rows(rows);
        const auto list = upload(device, chosen), packed_list = upload(device, packed);
        TestMatrix sums = TestMatrix(dtype_of<A>(), 3, 2 * router.experts, 1).random(2);
        auto truth = sums.values<Truth>();
        auto naive = sums.values<A>();
        reference::balance_sums(router, p.values<Truth>(), chosen, packed, truth);
        reference::balance_sums(router, p.values<A>(), chosen, packed, naive);
        device.balance_sums(router, p, list.data, packed_list.data, sums);
        check_close("sums", sums, truth, naive);
      }
    }
  });
}

TEST_CASE("balance_sums is the same for any number of threads", "[cpu]") {
  const Router router{60, 4, false, 1, 1, true, 1};
  const std::int64_t rows = 5000;
  std::vector<std::vector<unsigned char>> results;
  for (const int threads : {1, 2, 3, 7}) {
    const auto device = make_cpu_device(threads);
    TestMatrix p = TestMatrix(DType::f32, rows, router.experts).random(1);
    std::vector<std::int32_t> chosen(std::size_t(rows * router.chosen));
    device->choose_experts(router, p, Tensor{}, p, chosen);
    TestMatrix sums = TestMatrix(DType::f32, 3, 2 * router.experts).filled(0);
    device->balance_sums(router, p, chosen.data(), packed_rows(rows).data(), sums);
    results.push_back(sums.bytes());
  }
  for (const auto& result : results) CHECK(result == results[0]);
}

TEST_CASE("a router refuses what does not fit", "[cpu]") {
  const auto device = make_cpu_device(1);
  TestMatrix logits(DType::f32, 2, 6), p(DType::f32, 2, 6), bf(DType::bf16, 2, 6);
  std::vector<std::int32_t> chosen(4);
  const auto choose = [&](Router router, const TestMatrix& x = {DType::f32, 2, 6}) {
    const TestMatrix to(x.tensor().dtype, 2, 6);
    device->choose_experts(router, x, Tensor{}, to, chosen);
  };
  CHECK_NOTHROW(choose({6, 2}));
  CHECK_NOTHROW(choose({6, 2, true, 3, 1}));
  CHECK_THROWS_AS(choose({5, 2}), Error);
  CHECK_THROWS_AS(choose({6, 3}), Error);             // not the list's length
  CHECK_THROWS_AS(choose({6, 0}), Error);
  CHECK_THROWS_AS(choose({6, 2, true, 4, 2}), Error);
  CHECK_THROWS_AS(choose({6, 2, true, 6, 6}), Error); // groups of one
  CHECK_THROWS_AS(choose({6, 2, true, 3, 4}), Error);
  CHECK_THROWS_AS(choose({6, 2, true, 3, 0}), Error);
  CHECK_THROWS_AS(choose({6, 2}, bf), Error);
  const std::int32_t outside[] = {0, 6, 0, 1}, packed[] = {0, 1};
  TestMatrix weights(DType::f32, 2, 2), sums(DType::f32, 1, 12), balance(DType::f32, 1, 6);
  CHECK_THROWS_AS(device->expert_weights({6, 2}, p, outside, weights), Error);
  const std::int32_t inside[] = {0, 5, 0, 1};
  CHECK_THROWS_AS(device->balance_sums({6, 2}, p, inside, packed, sums), Error);
  CHECK_THROWS_AS(device->router_backward({6, 2}, p, inside, weights, balance, packed, p), Error);
  CHECK_THROWS_AS(device->router_backward({6, 2}, p, inside, weights, balance, nullptr, p), Error);
}

TEST_CASE("the counting device chooses every expert as often", "[cpu]") {
  CountingDevice device;
  std::vector<std::int32_t> chosen(12);
  device.choose_experts({6, 4}, Tensor{}, Tensor{}, Tensor{}, chosen);
  CHECK(chosen == std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4, 5});
}
