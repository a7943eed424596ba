// SPDX-License-Identifier: Apache-2.0
// RMS norm over rows.
#include "kernels/reference/rms_norm.h"
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

namespace {

/// One, two and four vectors a thread; a warp a row and several; rows too long for registers.
std::vector<Shape> norm_shapes() {
  std::vector<Shape> all = all_shapes();
  for (const Shape& s : {Shape{19, 64, 8}, Shape{21, 256, 0}, Shape{11, 512, 16}, Shape{9, 1000, 0},
                         Shape{5, 2048, 8}, Shape{3, 6008, 0}, Shape{2, 16400, 0}}) {
    all.push_back(s);
  }
  return all;
}

/// body.operator()<T, X>() for every dtype and what x may have beside it.
template <class Body>
void on_streams(Body&& body) {
  on_types([&]<class T>() {
    body.template operator()<T, T>();
    if constexpr (std::is_same_v<T, bfloat16>) body.template operator()<T, float>();
  });
}

}  // namespace

TEST_CASE("cuda rms_norm: forward") {
  on_streams([]<class T, class X>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), stream = dtype_of<X>(), sums = accumulate_type(type);
    for (const Shape& s : norm_shapes()) {
      const double eps = 1e-5;
      const auto x = TestMatrix(stream, s.rows, s.cols, s.padding).random(1, 0.3);
      const auto weight = TestMatrix(type, 1, s.cols).random(2);
      TestMatrix y(type, s.rows, s.cols, s.padding), rstd(sums, s.rows, 1, s.padding);
      const auto plain = [&]<class B>(B) {
        std::pair<reference::Matrix<B>, reference::Matrix<B>> r{{s.rows, s.cols}, {s.rows, 1}};
        reference::rms_norm_forward(x.values<B>(), weight.values<B>(), eps, r.first, r.second);
        return r;
      };
      cuda::rms_norm_forward<T>(nullptr, view<const X>(x), view<const T>(weight), eps, view<T>(y),
                                view<A>(rstd));
      wait();
      const auto truth = plain(Truth{});
      const auto naive = plain(A{});
      check_close("y", y, truth.first, naive.first);
      check_close("rstd", rstd, truth.second, naive.second);
    }
  });
}

TEST_CASE("cuda rms_norm: backward adds to both gradients") {
  on_streams([]<class T, class X>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), stream = dtype_of<X>(), sums = accumulate_type(type);
    for (const Shape& s : norm_shapes()) {
      const auto x = TestMatrix(stream, s.rows, s.cols, s.padding).random(1, 0.3);
      const auto weight = TestMatrix(type, 1, s.cols).random(2);
      TestMatrix rstd(sums, s.rows, 1, s.padding);
      for (std::int64_t i = 0; i < s.rows; ++i) rstd.set(i, 0, 2.5 + 0.1 * double(i % 7));
      const auto dy = TestMatrix(type, s.rows, s.cols, s.padding).random(3);
      const auto dx_start = TestMatrix(stream, s.rows, s.cols).random(4);
      const auto dw_start = TestMatrix(sums, 1, s.cols).random(7);  // 1 x 1: no cancellation
      const auto plain = [&]<class B>(B) {
        std::pair r{dx_start.values<B>(), dw_start.values<B>()};
        reference::rms_norm_backward(x.values<B>(), weight.values<B>(), rstd.values<B>(),
                                     dy.values<B>(), r.first, r.second);
        return r;
      };
      const auto truth = plain(Truth{});
      const auto naive = plain(A{});
      for (const std::int64_t most : {std::int64_t{2}, cuda::most_partials}) {
        TestMatrix dx =
            TestMatrix(stream, s.rows, s.cols, s.padding).from(dx_start.values<double>());
        TestMatrix dweight = TestMatrix(sums, 1, s.cols).from(dw_start.values<double>());
        TestMatrix partial(sums, most, s.cols, 1);
        cuda::rms_norm_backward<T>(nullptr, view<const X>(x), view<const T>(weight),
                                   view<const A>(rstd), view<const T>(dy), view<X>(dx),
                                   view<A>(partial), view<A>(dweight));
        wait();
        INFO("partial sums " << most);
        check_close("dx", dx, truth.first, naive.first);
        check_close("dweight", dweight, truth.second, naive.second);
        CHECK(partial.padding_untouched());
      }
    }
  });
}

TEST_CASE("cuda rms_norm: what is not finite stays in its row") {
  TestMatrix x = TestMatrix(DType::f32, 11, 8).random(1);
  x.set(1, 2, NAN);
  const TestMatrix weight = TestMatrix(DType::f32, 1, 8).filled(1);
  TestMatrix y(DType::f32, 11, 8), rstd(DType::f32, 11, 1);
  cuda::rms_norm_forward<float>(nullptr, view<const float>(x), view<const float>(weight), 1e-6,
                                view<float>(y), view<float>(rstd));
  wait();
  for (std::int64_t i = 0; i < 11; ++i) CHECK(std::isnan(y.get(i, 4)) == (i == 1));
}
