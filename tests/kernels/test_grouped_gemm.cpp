// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows, each with a matrix of its own.
#include "kernels/reference/products.h"
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

struct Case {
  std::vector<std::int64_t> rows;
  std::int64_t from, to, padding;  // columns of a and of c
  std::int64_t total() const {
    std::int64_t sum = 0;
    for (const std::int64_t count : rows) sum += count;
    return sum;
  }
  std::int64_t groups() const { return static_cast<std::int64_t>(rows.size()); }
};

const std::vector<Case> cases{{{0}, 3, 5, 0},           {{0, 0, 0}, 8, 4, 0},
                              {{7}, 16, 24, 8},         {{0, 5, 1, 0}, 7, 3, 5},
                              {{3, 0, 33, 64, 1}, 33, 20, 0}, {{1, 1, 1, 40}, 16, 1, 3}};

}  // namespace

TEST_CASE("grouped_gemm: both transposes, empty groups, both result types") {
  on_all([]<class T>(Device& device) {
    const DType type = dtype_of<T>();
    for (const Case& c : cases) {
      for (const Transpose trans : {Transpose::no, Transpose::yes}) {
        for (const DType output : {type, accumulate_type(type)}) {
          const bool turned = trans == Transpose::yes;
          const auto a = TestMatrix(type, c.total(), c.from, c.padding).random(1);
          const auto w = TestMatrix(type, c.groups() * (turned ? c.to : c.from),
                                    turned ? c.from : c.to, 2 * c.padding)
                             .random(2);
          TestMatrix out(output, c.total(), c.to, c.padding);
          const auto plain = [&]<class B>(B) {
            reference::Matrix<B> r(c.total(), c.to);
            reference::grouped_gemm(a.values<B>(), c.rows, w.values<B>(), turned, r);
            return r;
          };
          device.grouped_gemm(a, c.rows, w, trans, out);
          INFO(c.groups() << " groups, transposed " << turned);
          check_close("grouped_gemm", out, plain(Truth{}), plain(accumulate_t<T>{}));
        }
      }
    }
  });
}

TEST_CASE("grouped_gemm_gradient adds to each group's matrix") {
  on_all([]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>();
    for (const Case& c : cases) {
      const auto dy = TestMatrix(type, c.total(), c.to, c.padding).random(1);
      const auto x = TestMatrix(type, c.total(), c.from, 2 * c.padding).random(2);
      TestMatrix dw =
          TestMatrix(accumulate_type(type), c.groups() * c.to, c.from, c.padding).random(3);
      auto truth = dw.values<Truth>();
      auto naive = dw.values<A>();
      reference::grouped_gemm_gradient(dy.values<Truth>(), x.values<Truth>(), c.rows, truth);
      reference::grouped_gemm_gradient(dy.values<A>(), x.values<A>(), c.rows, naive);
      device.grouped_gemm_gradient(dy, x, c.rows, dw);
      INFO(c.groups() << " groups");
      check_close("grouped_gemm_gradient", dw, truth, naive);
    }
  });
}

TEST_CASE("grouped products refuse what does not fit", "[cpu]") {
  const auto device = make_cpu_device(1);
  const auto no = Transpose::no, yes = Transpose::yes;
  TestMatrix a(DType::f32, 5, 3), w(DType::f32, 8, 3), c(DType::f32, 5, 4), bf(DType::bf16, 8, 3);
  const std::vector<std::int64_t> two{2, 3}, three{1, 1, 3}, few{2, 2}, negative{-1, 6}, none{};
  CHECK_NOTHROW(device->grouped_gemm(a, two, w, yes, c));
  CHECK_THROWS_AS(device->grouped_gemm(a, two, w, no, c), Error);
  CHECK_THROWS_AS(device->grouped_gemm(a, three, w, yes, c), Error);
  CHECK_THROWS_AS(device->grouped_gemm(a, few, w, yes, c), Error);
  CHECK_THROWS_AS(device->grouped_gemm(a, negative, w, yes, c), Error);
  CHECK_THROWS_AS(device->grouped_gemm(a, none, w, yes, c), Error);
  CHECK_THROWS_AS(device->grouped_gemm(a, two, bf, yes, c), Error);
  CHECK_NOTHROW(device->grouped_gemm_gradient(c, a, two, w));
  CHECK_THROWS_AS(device->grouped_gemm_gradient(a, c, two, w), Error);
  CHECK_THROWS_AS(device->grouped_gemm_gradient(c, a, two, bf), Error);
}
