// SPDX-License-Identifier: Apache-2.0
// A mixture's router.
#include "kernels/reference/router.h"
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

namespace {

/// experts, chosen, sigmoid, groups, best groups, normalise, scaling
const std::vector<Router> routers{{5, 5, false, 1, 1, true, 1},     {60, 4, false, 1, 1, false, 1},
                                  {129, 40, false, 1, 1, true, 1},  {33, 1, true, 1, 1, true, 2.5},
                                  {8, 8, true, 4, 4, false, 1.5},   {256, 8, true, 8, 4, true, 2.5},
                                  {132, 16, true, 44, 8, true, 1}};

template <class Body>
void on_sums(Body&& body) {
  for (const Router& router : routers) {
    INFO(router.chosen << " of " << router.experts << " experts, " << router.groups << " groups");
    body.template operator()<double>(router);
    body.template operator()<float>(router);
  }
}

struct Routed {
  TestMatrix p;
  std::vector<std::int32_t> chosen;
};

/// Probabilities of random logits and their experts.
template <class A>
Routed routed(const Router& router, std::int64_t rows) {
  const auto logits = TestMatrix(dtype_of<A>(), rows, router.experts, 1).random(1, 2);
  reference::Matrix<A> p(rows, router.experts);
  reference::router_probabilities(router, logits.values<A>(), p);
  return {TestMatrix(dtype_of<A>(), rows, router.experts, 2).from(p),
          reference::choose_experts(router, p, reference::Matrix<A>())};
}

}  // namespace

TEST_CASE("cuda choose_experts: probabilities and the choice") {
  on_sums([]<class A>(const Router& router) {
    const std::int64_t rows = 31;
    auto logits = TestMatrix(dtype_of<A>(), rows, router.experts, 3).random(1, 2);
    for (std::int64_t e = 0; e < router.experts; ++e) {
      logits.set(2, e, 0.0);  // equals
      logits.set(3, e, static_cast<double>(e * 7 % 3));
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
      cuda::choose_experts<A>(nullptr, router, view<const A>(logits),
                              biased ? view<const A>(bias).data : nullptr, view<A>(p),
                              chosen.data());
      wait();
      check_close("probabilities", p, plain(Truth{}), plain(A{}));
      CHECK(chosen == reference::choose_experts(router, p.values<A>(),
                                                biased ? bias.values<A>()
                                                       : reference::Matrix<A>()));
    }
  });
}

TEST_CASE("cuda router_backward and expert_weights") {
  on_sums([]<class A>(const Router& router) {
    const std::int64_t rows = 31;
    const Routed mine = routed<A>(router, rows);
    const TestMatrix& p = mine.p;
    const std::vector<std::int32_t>& chosen = mine.chosen;
    std::vector<std::int32_t> packed;
    for (std::int64_t i = 0; i < rows; ++i) packed.push_back(static_cast<std::int32_t>(i % 3) - 1);
    const auto dweights = TestMatrix(dtype_of<A>(), rows, router.chosen, 3).random(2);
    const auto balance = TestMatrix(dtype_of<A>(), 2, router.experts, 1).random(3);
    TestMatrix weights(dtype_of<A>(), rows, router.chosen, 1);
    TestMatrix dlogits(dtype_of<A>(), rows, router.experts, 2);
    TestMatrix over = TestMatrix(dtype_of<A>(), rows, router.experts, 2).from(p.values<A>());
    const auto backward = [&](const TestMatrix& from, const TestMatrix& to) {
      cuda::router_backward<A>(nullptr, router, view<const A>(from), chosen.data(),
                               view<const A>(dweights), view<const A>(balance), packed.data(),
                               view<A>(to));
    };
    cuda::expert_weights<A>(nullptr, router, view<const A>(p), chosen.data(), view<A>(weights));
    backward(p, dlogits);
    backward(over, over);
    wait();
    const auto plain = [&]<class B>(B) {
      std::pair<reference::Matrix<B>, reference::Matrix<B>> r{{rows, router.chosen},
                                                              {rows, router.experts}};
      reference::expert_weights(router, p.values<B>(), chosen, r.first);
      reference::router_backward(router, p.values<B>(), chosen, dweights.values<B>(),
                                 balance.values<B>(), packed, r.second);
      return r;
    };
    const auto truth = plain(Truth{});
    const auto naive = plain(A{});
    check_close("weights", weights, truth.first, naive.first);
    check_close("dlogits", dlogits, truth.second, naive.second);
    CHECK(over.bytes() == dlogits.bytes());
  });
}

TEST_CASE("cuda balance_sums of several slices") {
  on_sums([]<class A>(const Router& router) {
    const std::int64_t rows = 203;
    const Routed mine = routed<A>(router, rows);
    const TestMatrix& p = mine.p;
    const std::vector<std::int32_t>& chosen = mine.chosen;
    std::vector<std::int32_t> packed;
    for (std::int64_t i = 0; i < rows; ++i) {
      packed.push_back(i % 5 == 3 ? -1 : i < rows / 3 ? 2 : 0);
    }
    TestMatrix sums = TestMatrix(dtype_of<A>(), 3, 2 * router.experts, 1).random(2);
    auto truth = sums.values<Truth>();
    auto naive = sums.values<A>();
    reference::balance_sums(router, p.values<Truth>(), chosen, packed, truth);
    reference::balance_sums(router, p.values<A>(), chosen, packed, naive);
    const std::int64_t slices = cuda::balance_slices(rows);
    CHECK(slices > 1);
    TestMatrix partial(dtype_of<A>(), 3 * slices, 2 * router.experts);
    cuda::balance_sums<A>(nullptr, router, view<const A>(p), chosen.data(), packed.data(),
                          view<A>(partial), view<A>(sums));
    wait();
    check_close("sums", sums, truth, naive);
  });
}
