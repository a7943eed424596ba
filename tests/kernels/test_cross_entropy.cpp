// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and its gradient.
#include "kernels/reference/cross_entropy.h"
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

std::vector<std::int32_t> some_targets(std::int64_t rows, std::int64_t vocab,
                                       std::int64_t excluded) {
  std::vector<std::int32_t> targets;
  for (std::int64_t i = 0; i < rows; ++i) {
    std::int64_t target = i * 13 % vocab;
    if (target == excluded) target = (target + 1) % vocab;
    targets.push_back(static_cast<std::int32_t>(target));
  }
  return targets;
}

}  // namespace

TEST_CASE("cross_entropy: loss and gradient, with and without an excluded id") {
  const std::vector<Shape> sizes{{0, 9, 0}, {1, 2, 0}, {37, 33, 3}, {41, 1201, 7}, {3, 9001, 1}};
  on_all([&]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    for (const Shape& s : sizes) {
      for (const std::int64_t excluded :
           {std::int64_t{-1}, std::int64_t{0}, s.cols / 2, s.cols - 1}) {
        const auto targets = some_targets(s.rows, s.cols, excluded);
        const auto list = upload(device, targets);
        const auto logits = TestMatrix(sums, s.rows, s.cols, s.padding).random(1, 4);
        TestMatrix weight = TestMatrix(sums, s.rows, 1, 2).random(2);
        if (s.rows > 3) weight.set(3, 0, 0.0);
        TestMatrix loss(sums, s.rows, 1, 1), dlogits(type, s.rows, s.cols, 2 * s.padding);
        const auto plain = [&]<class B>(B) {
          std::pair<reference::Matrix<B>, reference::Matrix<B>> r{{s.rows, 1}, {s.rows, s.cols}};
          reference::cross_entropy(logits.values<B>(), targets, weight.values<B>(), excluded,
                                   r.first, r.second);
          return r;
        };
        const auto truth = plain(Truth{});
        const auto naive = plain(A{});
        device.cross_entropy(logits, list.data, weight, excluded, loss, dlogits);
        INFO("excluded " << excluded);
        check_close("loss", loss, truth.first, naive.first);
        check_close("dlogits", dlogits, truth.second, naive.second);
        if (type == sums) {
          TestMatrix over =
              TestMatrix(sums, s.rows, s.cols, 2 * s.padding).from(logits.values<double>());
          device.cross_entropy(over, list.data, weight, excluded, loss, over);
          CHECK(over.bytes() == dlogits.bytes());
        }
      }
    }
  });
}

TEST_CASE("cross_entropy: the gradient is that of the weighted loss") {
  on_devices([](Device& device) {
    TestMatrix logits = TestMatrix(DType::f64, 3, 11).random(1);
    const TestMatrix weight = TestMatrix(DType::f64, 3, 1).random(2);
    const std::vector<std::int32_t> targets{0, 10, 4};
    const auto list = upload(device, targets);
    TestMatrix loss(DType::f64, 3, 1), dlogits(DType::f64, 3, 11), ignored(DType::f64, 3, 11);
    device.cross_entropy(logits, list.data, weight, 7, loss, dlogits);
    check_gradient("logits", logits, dlogits, [&] {
      device.cross_entropy(logits, list.data, weight, 7, loss, ignored);
      return dot(loss, weight);
    });
  });
}

TEST_CASE("cross_entropy: parts of the vocabulary give the whole") {
  struct Case {
    std::int64_t rows, vocab;
    std::vector<std::int64_t> ends;  // of the parts
    std::int64_t excluded;
  };
  const std::vector<Case> cases{{0, 9, {4, 9, 9}, 2},       {5, 33, {7, 8, 33}, 7},
                                {37, 33, {0, 20, 33}, -1},  {5, 1200, {400, 404, 1200}, 5},
                                {7, 9001, {1, 5000, 9001}, 0}};
  on_all([&]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    for (const Case& c : cases) {
      const auto targets = some_targets(c.rows, c.vocab, c.excluded);
      const auto list = upload(device, targets);
      const auto logits = TestMatrix(sums, c.rows, c.vocab, 3).random(1, 4);
      const auto weight = TestMatrix(sums, c.rows, 1, 2).random(2);
      TestMatrix parts(sums, 3 * c.rows, 3, 1), all(sums, c.rows, 3, 2), loss(sums, c.rows, 1, 1);
      TestMatrix dlogits(type, c.rows, c.vocab, 1);
      const auto each_part = [&](auto&& body) {
        for (std::size_t part = 0; part < 3; ++part) {
          const std::int64_t first = part > 0 ? c.ends[part - 1] : 0;
          body(first, c.ends[part] - first, static_cast<std::int64_t>(part));
        }
      };
      reference::Matrix<Truth> statistics(3 * c.rows, 3);
      each_part([&](std::int64_t first, std::int64_t count, std::int64_t part) {
        device.cross_entropy_statistics(logits.tensor().slice_cols(first, count), first,
                                        list.data, c.excluded,
                                        parts.tensor().slice_rows(part * c.rows, c.rows));
        reference::Matrix<Truth> mine(c.rows, count), result(c.rows, 3);
        for (std::int64_t i = 0; i < c.rows; ++i) {
          for (std::int64_t j = 0; j < count; ++j) mine(i, j) = logits.get(i, first + j);
        }
        reference::cross_entropy_statistics(mine, first, targets, c.excluded, result);
        std::copy(result.values.begin(), result.values.end(),
                  statistics.values.begin() + part * c.rows * 3);
      });
      for (std::int64_t i = 0; i < 3 * c.rows; ++i) {
        INFO("part " << i / c.rows << ", row " << i % c.rows);
        CHECK(parts.get(i, 0) == double(statistics(i, 0)));
        CHECK(parts.get(i, 1) == Approx(double(statistics(i, 1))).epsilon(1e-5));
        CHECK(parts.get(i, 2) == double(statistics(i, 2)));
      }

      device.merge_cross_entropy(parts, all, loss);
      each_part([&](std::int64_t first, std::int64_t count, std::int64_t) {
        device.cross_entropy_gradient(logits.tensor().slice_cols(first, count), first, list.data,
                                      weight, c.excluded, all,
                                      dlogits.tensor().slice_cols(first, count));
      });
      const auto plain = [&]<class B>(B) {
        std::pair<reference::Matrix<B>, reference::Matrix<B>> r{{c.rows, 1}, {c.rows, c.vocab}};
        reference::cross_entropy(logits.values<B>(), targets, weight.values<B>(), c.excluded,
                                 r.first, r.second);
        return r;
      };
      const auto truth = plain(Truth{});
      const auto naive = plain(A{});
      INFO(c.vocab << " ids, excluded " << c.excluded);
      check_close("loss", loss, truth.first, naive.first);
      check_close("dlogits", dlogits, truth.second, naive.second);
      CHECK(all.padding_untouched());

      if (type != sums) continue;
      TestMatrix over = TestMatrix(sums, c.rows, c.vocab, 1).from(logits.values<double>());
      each_part([&](std::int64_t first, std::int64_t count, std::int64_t) {
        const Tensor part = over.tensor().slice_cols(first, count);
        device.cross_entropy_gradient(part, first, list.data, weight, c.excluded, all, part);
      });
      CHECK(over.bytes() == dlogits.bytes());
    }
  });
}

TEST_CASE("cross_entropy: parts in which nothing is possible") {
  on_devices([](Device& device) {
    // Two parts of two ids; of the first only what is excluded, what is impossible, what is no
    // number.
    const std::vector<std::int32_t> targets{2, 2, 2, 0};
    const auto list = upload(device, targets);
    TestMatrix logits = TestMatrix(DType::f32, 4, 4).filled(1);
    for (std::int64_t j = 0; j < 2; ++j) {
      logits.set(1, j, -INFINITY);
      logits.set(2, j, NAN);
    }
    const auto weight = TestMatrix(DType::f32, 4, 1).filled(1);
    TestMatrix parts(DType::f32, 8, 3), all(DType::f32, 4, 3), loss(DType::f32, 4, 1);
    TestMatrix dlogits(DType::f32, 4, 4);
    for (const std::int64_t part : {0, 1}) {
      device.cross_entropy_statistics(logits.tensor().slice_cols(2 * part, 2), 2 * part, list.data,
                                      0, parts.tensor().slice_rows(4 * part, 4));
    }
    device.merge_cross_entropy(parts, all, loss);
    for (const std::int64_t part : {0, 1}) {
      device.cross_entropy_gradient(logits.tensor().slice_cols(2 * part, 2), 2 * part, list.data,
                                    weight, 0, all, dlogits.tensor().slice_cols(2 * part, 2));
    }
    CHECK(parts.get(1, 0) == -INFINITY);
    CHECK(parts.get(1, 1) == 0);
    CHECK(loss.get(0, 0) == Approx(std::log(3.0)));
    CHECK(loss.get(1, 0) == Approx(std::log(2.0)));
    CHECK(dlogits.get(1, 1) == 0);
    CHECK(dlogits.get(1, 2) == Approx(-0.5));
    CHECK(std::isnan(loss.get(2, 0)));
    CHECK(std::isnan(dlogits.get(2, 3)));
    CHECK(parts.get(3, 2) == -INFINITY);  // the target is what is excluded
    CHECK(std::isinf(loss.get(3, 0)));
    for (std::int64_t i = 0; i < 4; ++i) CHECK(dlogits.get(i, 0) == 0);
  });
}

TEST_CASE("cross_entropy: extreme logits") {
  on_devices([](Device& device) {
    TestMatrix logits = TestMatrix(DType::f32, 4, 6).filled(-INFINITY);
    const std::vector<std::int32_t> targets{2, 1, 3, 0};
    const auto list = upload(device, targets);
    for (std::int64_t j = 0; j < 6; ++j) {
      logits.set(0, j, j == 2 ? 1e30 : -1e30);            // sure and right: loss 0
      logits.set(1, j, j == 2 ? 300.0 : 0.0);             // sure and wrong: loss 300
      logits.set(2, j, j < 2 ? double(-INFINITY) : 1.0);  // some impossible answers
      logits.set(3, j, j == 4 ? double(NAN) : 1.0);
    }
    TestMatrix loss(DType::f32, 4, 1), dlogits(DType::f32, 4, 6);
    device.cross_entropy(logits, list.data, TestMatrix(DType::f32, 4, 1).filled(1), -1, loss,
                         dlogits);
    CHECK(loss.get(0, 0) == 0);
    CHECK(dlogits.get(0, 2) == 0);
    CHECK(loss.get(1, 0) == 300);
    CHECK(dlogits.get(1, 1) == -1);
    CHECK(dlogits.get(1, 2) == 1);
    CHECK(loss.get(2, 0) == Approx(std::log(4.0)));
    CHECK(dlogits.get(2, 0) == 0);
    CHECK(dlogits.get(2, 3) == Approx(-0.75));
    CHECK(std::isnan(loss.get(3, 0)));
    for (std::int64_t j = 0; j < 6; ++j) CHECK(std::isnan(dlogits.get(3, j)));
  });
}

TEST_CASE("cross_entropy refuses targets outside the vocabulary", "[cpu]") {
  const auto device = make_cpu_device(1);
  TestMatrix logits(DType::f32, 1, 6), weight(DType::f32, 1, 1), loss(DType::f32, 1, 1);
  const std::int32_t target = 6, good = 5;
  CHECK_THROWS_AS(device->cross_entropy(logits, &target, weight, -1, loss, logits), Error);
  CHECK_THROWS_AS(device->cross_entropy(logits, &good, weight, 6, loss, logits), Error);
}
