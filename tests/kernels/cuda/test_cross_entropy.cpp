// SPDX-License-Identifier: Apache-2.0
// Cross-entropy and its gradient, also from two halves of the vocabulary.
#include "kernels/reference/cross_entropy.h"
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

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

template <class A>
struct Result {
  reference::Matrix<A> loss, dlogits;
};

template <class A>
Result<A> plain(const TestMatrix& logits, const std::vector<std::int32_t>& targets,
                const TestMatrix& weight, std::int64_t excluded) {
  const Tensor& t = logits.tensor();
  Result<A> r{{t.rows, 1}, {t.rows, t.cols}};
  reference::cross_entropy(logits.values<A>(), targets, weight.values<A>(), excluded, r.loss,
                           r.dlogits);
  return r;
}

template <class T>
void run(const TestMatrix& logits, const std::int32_t* targets, const TestMatrix& weight,
         std::int64_t excluded, const TestMatrix& loss, const TestMatrix& dlogits) {
  using A = accumulate_t<T>;
  cuda::cross_entropy<T>(nullptr, view<const A>(logits), targets, view<const A>(weight), excluded,
                         view<A>(loss), view<T>(dlogits));
  wait();
}

/// Columns [first, last) of a matrix in place.
template <class T>
cuda::View<T> columns(const TestMatrix& x, std::int64_t first, std::int64_t last) {
  cuda::View<T> v = view<T>(x);
  v.data += first;
  v.cols = last - first;
  return v;
}

}  // namespace

TEST_CASE("cuda cross_entropy: loss and gradient with and without an excluded id") {
  // The last is longer than what a block keeps.
  const std::vector<Shape> sizes{{0, 9, 0},    {1, 2, 0},    {7, 33, 3},
                                 {5, 1200, 4}, {3, 9001, 1}, {2, 60000, 4}};
  on_types([&]<class T>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    for (const Shape& s : sizes) {
      for (const std::int64_t excluded :
           {std::int64_t{-1}, std::int64_t{0}, s.cols / 2, s.cols - 1}) {
        const auto targets = some_targets(s.rows, s.cols, excluded);
        const auto logits = TestMatrix(sums, s.rows, s.cols, s.padding).random(1, 4);
        TestMatrix weight = TestMatrix(sums, s.rows, 1, 2).random(2);
        if (s.rows > 3) weight.set(3, 0, 0.0);
        TestMatrix loss(sums, s.rows, 1, 1), dlogits(type, s.rows, s.cols, 2 * s.padding);
        const auto truth = plain<Truth>(logits, targets, weight, excluded);
        const auto naive = plain<A>(logits, targets, weight, excluded);
        run<T>(logits, targets.data(), weight, excluded, loss, dlogits);
        INFO("excluded " << excluded);
        check_close("loss", loss, truth.loss, naive.loss);
        check_close("dlogits", dlogits, truth.dlogits, naive.dlogits);
        if (type == sums) {
          TestMatrix over =
              TestMatrix(sums, s.rows, s.cols, 2 * s.padding).from(logits.values<double>());
          run<T>(over, targets.data(), weight, excluded, loss, over);
          CHECK(over.bytes() == dlogits.bytes());
        }
      }
    }
  });
}

TEST_CASE("cuda cross_entropy: two halves of the vocabulary give the whole") {
  on_types([]<class T>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    for (const auto& [vocab, cut, excluded] :
         {std::array{1201, 333, 7}, std::array{1200, 400, 400}, std::array{90, 89, -1}}) {
      const std::int64_t rows = 5;
      const auto targets = some_targets(rows, vocab, excluded);
      const auto logits = TestMatrix(sums, rows, vocab).random(1, 4);
      const auto weight = TestMatrix(sums, rows, 1).random(2);
      const auto truth = plain<Truth>(logits, targets, weight, excluded);
      const auto naive = plain<A>(logits, targets, weight, excluded);

      TestMatrix parts(sums, 2 * rows, 3, 1);
      const auto statistics = [&](std::int64_t first, std::int64_t last, std::int64_t part) {
        cuda::View<A> out = view<A>(parts);
        out.data += part * rows * out.stride;
        out.rows = rows;
        cuda::cross_entropy_statistics<A>(nullptr, columns<const A>(logits, first, last), first,
                                          targets.data(), excluded, out);
      };
      statistics(0, cut, 0);
      statistics(cut, vocab, 1);
      TestMatrix all(sums, rows, 3, 2), loss(sums, rows, 1), dlogits(type, rows, vocab);
      cuda::merge_cross_entropy<A>(nullptr, view<const A>(parts), view<A>(all), view<A>(loss));
      wait();
      CHECK(parts.padding_untouched());
      CHECK(all.padding_untouched());
      check_close("loss", loss, truth.loss, naive.loss);
      const auto gradient = [&](std::int64_t first, std::int64_t last) {
        cuda::cross_entropy_gradient<T>(nullptr, columns<const A>(logits, first, last), first,
                                        targets.data(), view<const A>(weight), excluded,
                                        view<const A>(all), columns<T>(dlogits, first, last));
        wait();
      };
      gradient(0, cut);
      gradient(cut, vocab);
      check_close("dlogits", dlogits, truth.dlogits, naive.dlogits);
    }
  });
}

TEST_CASE("cuda cross_entropy: extreme logits") {
  TestMatrix logits = TestMatrix(DType::f32, 6, 6).filled(-INFINITY);
  const std::int32_t targets[] = {2, 1, 3, 0, 1, 5};
  for (std::int64_t j = 0; j < 6; ++j) {
    logits.set(0, j, j == 2 ? 1e30 : -1e30);            // sure and right: loss 0
    logits.set(1, j, j == 2 ? 300.0 : 0.0);             // sure and wrong: loss 300
    logits.set(2, j, j < 2 ? double(-INFINITY) : 1.0);  // some impossible answers
    logits.set(3, j, j == 4 ? double(NAN) : 1.0);
    logits.set(5, j, 1.0);  // row 4 has no answer; row 5 asks for the excluded one
  }
  const TestMatrix weight = TestMatrix(DType::f32, 6, 1).filled(1);
  TestMatrix loss(DType::f32, 6, 1), dlogits(DType::f32, 6, 6);
  run<float>(logits, targets, weight, 5, loss, dlogits);
  CHECK(loss.get(0, 0) == 0);
  CHECK(dlogits.get(0, 2) == 0);
  CHECK(loss.get(1, 0) == 300);
  CHECK(dlogits.get(1, 1) == -1);
  CHECK(dlogits.get(1, 2) == 1);
  CHECK(loss.get(2, 0) == Approx(std::log(3.0)));
  CHECK(dlogits.get(2, 0) == 0);
  CHECK(dlogits.get(2, 3) == Approx(-2.0 / 3));
  CHECK(std::isnan(loss.get(3, 0)));
  CHECK(std::isnan(loss.get(4, 0)));
  for (std::int64_t j = 0; j < 5; ++j) {
    CHECK(std::isnan(dlogits.get(3, j)));
    CHECK(std::isnan(dlogits.get(4, j)));
    CHECK(dlogits.get(5, j) == Approx(0.2));
  }
  CHECK(std::isinf(loss.get(5, 0)));
  for (std::int64_t i = 0; i < 6; ++i) CHECK(dlogits.get(i, 5) == 0);
}

TEST_CASE("cuda cross_entropy: 1 - p is not lost when the model is sure") {
  TestMatrix logits = TestMatrix(DType::f32, 1, 300).filled(-15);
  logits.set(0, 8, 0.0);
  const TestMatrix weight = TestMatrix(DType::f32, 1, 1).filled(1);
  const std::int32_t target = 8;
  TestMatrix loss(DType::f32, 1, 1), dlogits(DType::f32, 1, 300);
  run<float>(logits, &target, weight, -1, loss, dlogits);
  const double others = 299 * std::exp(-15.0);
  CHECK(loss.get(0, 0) == Approx(std::log1p(others)).epsilon(1e-2));
  CHECK(dlogits.get(0, 8) == Approx(-others / (1 + others)).epsilon(1e-2));
}
