// SPDX-License-Identifier: Apache-2.0
// Copies, sums and row lists between all dtypes and strides.
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

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
  for (std::int64_t i = 0; i < y.rows(); ++i) {
    for (std::int64_t j = 0; j < y.cols(); ++j) {
      if (y.get(i, j) != value(i, j)) return false;
    }
  }
  return y.padding_untouched();
}

/// A list of distinct rows in no order.
std::vector<std::int32_t> row_list(std::int64_t count, std::int64_t limit) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(limit));
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i);
  std::shuffle(rows.begin(), rows.end(), std::mt19937(5));
  rows.resize(static_cast<std::size_t>(count));
  return rows;
}

/// body(device, type of x, type of y, shape) for all combinations.
template <class Body>
void on_pairs(Body&& body) {
  on_all([&]<class X>(Device& device) {
    for (const DType to : {DType::f64, DType::f32, DType::bf16}) {
      for (const Shape& shape : device_shapes()) body(device, dtype_of<X>(), to, shape);
    }
  });
}

}  // namespace

TEST_CASE("zero, copy and add") {
  on_pairs([](Device& device, DType from, DType to, const Shape& s) {
    const TestMatrix x = TestMatrix(from, s.rows, s.cols, s.padding).random(1);
    const TestMatrix before = TestMatrix(to, s.rows, s.cols).random(2);
    TestMatrix y = TestMatrix(to, s.rows, s.cols, 2 * s.padding).from(before.values<double>());
    device.add(x, y);
    CHECK(holds(y, [&](auto i, auto j) {
      const bool wide = from == DType::f64 || to == DType::f64;
      const double sum = before.get(i, j) + x.get(i, j);
      return rounded(to, wide ? sum : static_cast<float>(sum));
    }));
    device.copy(x, y);
    CHECK(holds(y, [&](auto i, auto j) { return rounded(to, x.get(i, j)); }));
    device.zero(y);
    CHECK(holds(y, [](auto, auto) { return 0.0; }));
  });
}

TEST_CASE("gather_rows and scatter_add_rows") {
  on_pairs([](Device& device, DType from, DType to, const Shape& s) {
    const std::int64_t picked = s.rows / 2;
    const auto rows = row_list(picked, s.rows);
    const auto list = upload(device, rows);
    const TestMatrix x = TestMatrix(from, s.rows, s.cols, s.padding).random(1);
    TestMatrix y(from, picked, s.cols, s.padding / 2);
    device.gather_rows(x, list.data, y);
    CHECK(holds(y, [&](auto i, auto j) { return x.get(rows[std::size_t(i)], j); }));

    const TestMatrix before = TestMatrix(to, s.rows, s.cols).random(2);
    TestMatrix z = TestMatrix(to, s.rows, s.cols, s.padding).from(before.values<double>());
    TestMatrix expected = TestMatrix(to, s.rows, s.cols).from(before.values<double>());
    for (std::int64_t i = 0; i < picked; ++i) {
      device.add(y.tensor().slice_rows(i, 1),
                 expected.tensor().slice_rows(rows[std::size_t(i)], 1));
    }
    device.scatter_add_rows(y, list.data, z);
    CHECK(holds(z, [&](auto i, auto j) { return expected.get(i, j); }));
  });
}

TEST_CASE("add_gathered_rows adds each row's list in order") {
  on_pairs([](Device& device, DType from, DType to, const Shape& s) {
    for (const std::int64_t count : {0, 1, 3}) {
      const std::int64_t some = 2 * s.rows + 1;
      std::vector<std::int32_t> places;
      for (std::int64_t i = 0; i < s.rows * count; ++i) {
        places.push_back(static_cast<std::int32_t>(i * 7 % some));
      }
      const auto list = upload(device, places);
      const TestMatrix x = TestMatrix(from, some, s.cols, s.padding).random(1);
      const TestMatrix before = TestMatrix(to, s.rows, s.cols).random(2);
      TestMatrix y = TestMatrix(to, s.rows, s.cols, 2 * s.padding).from(before.values<double>());
      device.add_gathered_rows(x, list.data, count, y);
      CHECK(holds(y, [&](auto i, auto j) {
        const bool wide = from == DType::f64 || to == DType::f64;
        double sum = before.get(i, j);
        for (std::int64_t n = 0; n < count; ++n) {
          sum += x.get(places[std::size_t(i * count + n)], j);
          if (!wide) sum = static_cast<float>(sum);
        }
        return rounded(to, sum);
      }));
    }
  });
}

TEST_CASE("host copies are contiguous") {
  on_devices([](Device& device) {
    const TestMatrix x = TestMatrix(DType::bf16, 5, 3, 4).random(1);
    std::vector<bfloat16> host(15);
    device.copy_to_host(x, host.data());
    TestMatrix y(DType::bf16, 5, 3, 1);
    device.copy_from_host(host.data(), y);
    CHECK(holds(y, [&](auto i, auto j) { return x.get(i, j); }));
  });
}

TEST_CASE("bfloat16 rounds to nearest even and keeps what is not finite") {
  on_devices([](Device& device) {
    const auto bits = [&](float value) {
      TestMatrix x(DType::f32, 1, 1), y(DType::bf16, 1, 1);
      x.set(0, 0, value);
      device.copy(x, y);
      settle();
      return Rows<bfloat16>(y)[0][0].bits;
    };
    CHECK(bits(1.0f) == 0x3f80);
    CHECK(bits(1.00390625f) == 0x3f80);  // halfway, to the even one below
    CHECK(bits(1.01171875f) == 0x3f82);  // halfway, to the even one above
    CHECK(bits(3.4e38f) == 0x7f80);      // overflow
    CHECK(bits(-INFINITY) == 0xff80);
    CHECK(bits(std::bit_cast<float>(0x7f800001u)) == 0x7fc0);  // NaN, not infinity
  });
}

TEST_CASE("movement refuses what does not fit", "[cpu]") {
  const auto device = make_cpu_device(1);
  TestMatrix x(DType::f32, 4, 3), y(DType::f32, 2, 3), z(DType::f32, 4, 2);
  const std::int32_t outside[] = {0, 4}, negative[] = {-1, 2};
  CHECK_THROWS_AS(device->copy(x, y), Error);
  CHECK_THROWS_AS(device->add(x, z), Error);
  CHECK_THROWS_AS(device->gather_rows(x, outside, y), Error);
  CHECK_THROWS_AS(device->gather_rows(x, negative, y), Error);
  CHECK_THROWS_AS(device->scatter_add_rows(y, outside, x), Error);
  CHECK_THROWS_AS(device->add_gathered_rows(x, outside, 1, y), Error);
  CHECK_THROWS_AS(device->add_gathered_rows(z, outside, 1, y), Error);
}
