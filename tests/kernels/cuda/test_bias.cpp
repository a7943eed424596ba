// SPDX-License-Identifier: Apache-2.0
// The bias of a linear layer and the sum of rows.
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

TEST_CASE("cuda bias: add_bias") {
  on_types([]<class T>() {
    const DType type = dtype_of<T>();
    for (const Shape& s : all_shapes()) {
      const auto bias = TestMatrix(type, 1, s.cols).random(1);
      TestMatrix y = TestMatrix(type, s.rows, s.cols, s.padding).random(2);
      auto truth = y.values<Truth>();
      auto naive = y.values<accumulate_t<T>>();
      for (std::int64_t i = 0; i < s.rows; ++i) {
        for (std::int64_t j = 0; j < s.cols; ++j) {
          truth(i, j) += static_cast<Truth>(bias.get(0, j));
          naive(i, j) += static_cast<accumulate_t<T>>(bias.get(0, j));
        }
      }
      cuda::add_bias<T>(nullptr, view<const T>(bias), view<T>(y));
      wait();
      check_close("add_bias", y, truth, naive);
    }
  });
}

TEST_CASE("cuda bias: bias_gradient adds the sum of rows in a fixed order") {
  on_types([]<class T>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    for (const Shape& s : all_shapes()) {
      for (const std::int64_t most : {std::int64_t{1}, std::int64_t{3}, cuda::most_partials}) {
        const auto dy = TestMatrix(type, s.rows, s.cols, s.padding).random(1);
        const auto start = TestMatrix(sums, 1, s.cols).random(2).values<double>();
        auto truth = TestMatrix(sums, 1, s.cols).from(start).values<Truth>();
        auto naive = TestMatrix(sums, 1, s.cols).from(start).values<A>();
        for (std::int64_t i = 0; i < s.rows; ++i) {
          for (std::int64_t j = 0; j < s.cols; ++j) {
            truth(0, j) += static_cast<Truth>(dy.get(i, j));
            naive(0, j) += static_cast<A>(dy.get(i, j));
          }
        }
        std::vector<unsigned char> first;
        for (int run = 0; run < 2; ++run) {
          TestMatrix partial(sums, most, s.cols, 1);
          TestMatrix dbias = TestMatrix(sums, 1, s.cols).from(start);
          cuda::bias_gradient<T>(nullptr, view<const T>(dy), view<A>(partial), view<A>(dbias));
          wait();
          if (run == 0) first = dbias.bytes();
          CHECK(dbias.bytes() == first);
          CHECK(partial.padding_untouched());
          if (run == 0) check_close("dbias", dbias, truth, naive);
        }
      }
    }
  });
}
