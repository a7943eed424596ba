// SPDX-License-Identifier: Apache-2.0
// Copies, sums and row lists between all dtypes, strides and alignments.
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

namespace {

/// What a value becomes in a matrix of that dtype.
double rounded(DType type, double value) {
  TestMatrix one(type, 1, 1);
  one.set(0, 0, value);
  return one.get(0, 0);
}

/// Whether value(i, j) is what y holds, bit by bit.
template <class Value>
bool holds(const TestMatrix& y, Value&& value) {
  for (std::int64_t i = 0; i < y.tensor().rows; ++i) {
    for (std::int64_t j = 0; j < y.tensor().cols; ++j) {
      if (y.get(i, j) != value(i, j)) return false;
    }
  }
  return y.padding_untouched();
}

double sum(DType from, DType to, double x, double y) {
  const bool wide = from == DType::f64 || to == DType::f64;
  return rounded(to, wide ? x + y : static_cast<float>(x + y));
}

/// A list of distinct rows in no order.
std::vector<std::int32_t> row_list(std::int64_t count, std::int64_t limit) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(limit));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
  std::shuffle(rows.begin(), rows.end(), std::mt19937(5));
  rows.resize(static_cast<std::size_t>(count));
  return rows;
}

/// body.operator()<X, Y>(shape) for all combinations.
template <class Body>
void on_pairs(Body&& body) {
  on_types([&]<class X>() {
    on_types([&]<class Y>() {
      for (const Shape& shape : all_shapes()) body.template operator()<X, Y>(shape);
    });
  });
}

}  // namespace

TEST_CASE("cuda movement: copy and add") {
  on_pairs([]<class X, class Y>(const Shape& s) {
    const DType from = dtype_of<X>(), to = dtype_of<Y>();
    const TestMatrix x = TestMatrix(from, s.rows, s.cols, s.padding).random(1);
    const TestMatrix before = TestMatrix(to, s.rows, s.cols).random(2);
    TestMatrix y = TestMatrix(to, s.rows, s.cols, 2 * s.padding).from(before.values<double>());
    INFO(name_of(from) << " to " << name_of(to) << ", " << s.rows << " x " << s.cols);
    cuda::add<X, Y>(nullptr, view<const X>(x), view<Y>(y));
    wait();
    CHECK(holds(y, [&](auto i, auto j) { return sum(from, to, x.get(i, j), before.get(i, j)); }));
    cuda::copy<X, Y>(nullptr, view<const X>(x), view<Y>(y));
    wait();
    CHECK(holds(y, [&](auto i, auto j) { return rounded(to, x.get(i, j)); }));
  });
}

TEST_CASE("cuda movement: gather_rows and scatter_add_rows") {
  on_pairs([]<class X, class Y>(const Shape& s) {
    const DType from = dtype_of<X>(), to = dtype_of<Y>();
    const std::int64_t picked = s.rows / 2;
    const auto rows = row_list(picked, s.rows);
    const TestMatrix x = TestMatrix(from, s.rows, s.cols, s.padding).random(1);
    TestMatrix y(from, picked, s.cols, s.padding / 2);
    INFO(name_of(from) << " to " << name_of(to) << ", " << s.rows << " x " << s.cols);
    cuda::gather_rows<X>(nullptr, view<const X>(x), rows.data(), view<X>(y));
    wait();
    CHECK(holds(y, [&](auto i, auto j) { return x.get(rows[std::size_t(i)], j); }));

    const TestMatrix before = TestMatrix(to, s.rows, s.cols).random(2);
    TestMatrix z = TestMatrix(to, s.rows, s.cols, s.padding).from(before.values<double>());
    TestMatrix expected = TestMatrix(to, s.rows, s.cols).from(before.values<double>());
    for (std::int64_t i = 0; i < picked; ++i) {
      const std::int64_t row = rows[std::size_t(i)];
      for (std::int64_t j = 0; j < s.cols; ++j) {
        expected.set(row, j, sum(from, to, y.get(i, j), before.get(row, j)));
      }
    }
    cuda::scatter_add_rows<X, Y>(nullptr, view<const X>(y), rows.data(), view<Y>(z));
    wait();
    CHECK(holds(z, [&](auto i, auto j) { return expected.get(i, j); }));
  });
}

TEST_CASE("cuda movement: add_gathered_rows adds each row's list in order") {
  on_pairs([]<class X, class Y>(const Shape& s) {
    const DType from = dtype_of<X>(), to = dtype_of<Y>();
    const std::int64_t count = 3, some = 2 * s.rows + 1;
    std::vector<std::int32_t> places;
    for (std::int64_t i = 0; i < s.rows * count; ++i) {
      places.push_back(static_cast<std::int32_t>(i * 7 % some));
    }
    const TestMatrix x = TestMatrix(from, some, s.cols, s.padding).random(1);
    const TestMatrix before = TestMatrix(to, s.rows, s.cols).random(2);
    TestMatrix y = TestMatrix(to, s.rows, s.cols, 2 * s.padding).from(before.values<double>());
    INFO(name_of(from) << " to " << name_of(to) << ", " << s.rows << " x " << s.cols);
    if (s.rows > 0)
      cuda::add_gathered_rows<X, Y>(nullptr, view<const X>(x), places.data(), count, view<Y>(y));
    wait();
    CHECK(holds(y, [&](auto i, auto j) {
      const bool wide = from == DType::f64 || to == DType::f64;
      double total = before.get(i, j);
      for (std::int64_t n = 0; n < count; ++n) {
        total += x.get(places[std::size_t(i * count + n)], j);
        if (!wide) total = static_cast<float>(total);
      }
      return rounded(to, total);
    }));
  });
}

TEST_CASE("cuda movement: a copy of the same type keeps the bits of NaN") {
  float x[4], y[4];
  for (auto& value : x) value = std::bit_cast<float>(0x7f800123u);  // signalling, with a payload
  cuda::copy<float, float>(nullptr, {x, 1, 4, 4}, {y, 1, 4, 4});
  wait();
  for (const float value : y) CHECK(std::bit_cast<std::uint32_t>(value) == 0x7f800123u);
}
