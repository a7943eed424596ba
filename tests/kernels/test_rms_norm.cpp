// SPDX-License-Identifier: Apache-2.0
// RMS norm over rows.
#include <set>

#include "kernels/reference/rms_norm.h"
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

TEST_CASE("rms_norm forward and backward") {
  on_all([&]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    for (const DType stream : std::set{type, sums}) {  // of x and dx
      for (const Shape& s : device_shapes()) {
        const double eps = 1e-5;
        const auto x = TestMatrix(stream, s.rows, s.cols, s.padding).random(1, 0.3);
        const auto weight = TestMatrix(type, 1, s.cols).random(2);
        TestMatrix y(type, s.rows, s.cols, s.padding), rstd(sums, s.rows, 1, s.padding);
        const auto forward = [&]<class B>(B) {
          std::pair<reference::Matrix<B>, reference::Matrix<B>> r{{s.rows, s.cols}, {s.rows, 1}};
          reference::rms_norm_forward(x.values<B>(), weight.values<B>(), eps, r.first, r.second);
          return r;
        };
        device.rms_norm_forward(x, weight, eps, y, rstd);
        const auto truth = forward(Truth{});
        const auto naive = forward(A{});
        check_close("y", y, truth.first, naive.first);
        check_close("rstd", rstd, truth.second, naive.second);

        const auto dy = TestMatrix(type, s.rows, s.cols, s.padding).random(3);
        TestMatrix dx = TestMatrix(stream, s.rows, s.cols, s.padding).random(4);
        TestMatrix dweight = TestMatrix(sums, 1, s.cols).random(7);  // 1 x 1: no cancellation
        const auto backward = [&]<class B>(B) {
          std::pair r{dx.values<B>(), dweight.values<B>()};
          reference::rms_norm_backward(x.values<B>(), weight.values<B>(), rstd.values<B>(),
                                       dy.values<B>(), r.first, r.second);
          return r;
        };
        const auto true_gradients = backward(Truth{});
        const auto naive_gradients = backward(A{});
        device.rms_norm_backward(x, weight, rstd, dy, dx, dweight);
        check_close("dx", dx, true_gradients.first, naive_gradients.first);
        check_close("dweight", dweight, true_gradients.second, naive_gradients.second);
      }
    }
  });
}

TEST_CASE("rms_norm: gradients are those of the forward") {
  on_devices([](Device& device) {
    TestMatrix x = TestMatrix(DType::f64, 3, 7, 1).random(1);
    TestMatrix weight = TestMatrix(DType::f64, 1, 7).random(2);
    const TestMatrix dy = TestMatrix(DType::f64, 3, 7).random(3);
    TestMatrix y(DType::f64, 3, 7), rstd(DType::f64, 3, 1);
    TestMatrix dx = TestMatrix(DType::f64, 3, 7).filled(0);
    TestMatrix dweight = TestMatrix(DType::f64, 1, 7).filled(0);
    const auto loss = [&] {
      device.rms_norm_forward(x, weight, 1e-2, y, rstd);
      return dot(y, dy);
    };
    loss();
    device.rms_norm_backward(x, weight, rstd, dy, dx, dweight);
    check_gradient("x", x, dx, loss);
    check_gradient("weight", weight, dweight, loss);
  });
}

TEST_CASE("rms_norm: what is not finite stays in its row, and refuses what does not fit") {
  on_devices([](Device& device) {
    TestMatrix x = TestMatrix(DType::f32, 3, 5).random(1);
    x.set(1, 2, NAN);
    const TestMatrix weight = TestMatrix(DType::f32, 1, 5).filled(1);
    TestMatrix y(DType::f32, 3, 5), rstd(DType::f32, 3, 1);
    device.rms_norm_forward(x, weight, 1e-6, y, rstd);
    for (std::int64_t i = 0; i < 3; ++i) CHECK(std::isnan(y.get(i, 4)) == (i == 1));
    TestMatrix narrow(DType::f32, 1, 4), wide(DType::f64, 1, 5);
    CHECK_THROWS_AS(device.rms_norm_forward(x, narrow, 1e-6, y, rstd), Error);
    CHECK_THROWS_AS(device.rms_norm_forward(x, wide, 1e-6, y, rstd), Error);
  });
}
