// SPDX-License-Identifier: Apache-2.0
// The gated unit, and the exponential below it.
#include "kernels/cpu/vector_math.h"
#include "kernels/reference/swiglu.h"
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

TEST_CASE("fast_exp is within 1.1 units in the last place, everywhere", "[cpu]") {
  double worst = 0;
  for (float x = -86.98f; x < 88.72f; x += 0.00037f) {
    const double truth = std::exp(static_cast<double>(x));
    int exponent = 0;
    std::frexp(truth, &exponent);
    const double unit = std::ldexp(1.0, exponent - 24);
    worst = std::max(worst, std::fabs(static_cast<double>(fast_exp(x)) - truth) / unit);
  }
  CHECK(worst < 1.1);
}

TEST_CASE("fast_exp at the ends", "[cpu]") {
  CHECK(fast_exp(0.0f) == 1.0f);
  CHECK(fast_exp(-INFINITY) == 0.0f);
  CHECK(fast_exp(-1e30f) == 0.0f);
  CHECK(fast_exp(-87.0f) == 0.0f);
  CHECK(fast_exp(INFINITY) == INFINITY);
  CHECK(fast_exp(88.73f) == INFINITY);
  CHECK(std::isfinite(fast_exp(88.72f)));
  CHECK(std::isnan(fast_exp(NAN)));
  CHECK(std::isnan(fast_exp(-NAN)));
}

TEST_CASE("swiglu forward and backward") {
  on_all([&]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>();
    for (const Shape& s : device_shapes()) {
      const auto gate_up = TestMatrix(type, s.rows, 2 * s.cols, s.padding).random(1, 3);
      TestMatrix y(type, s.rows, s.cols, s.padding);
      const auto forward = [&]<class B>(B) {
        reference::Matrix<B> r(s.rows, s.cols);
        reference::swiglu_forward(gate_up.values<B>(), r);
        return r;
      };
      device.swiglu_forward(gate_up, y);
      check_close("y", y, forward(Truth{}), forward(A{}));

      const auto dy = TestMatrix(type, s.rows, s.cols, s.padding).random(2);
      const auto backward = [&]<class B>(B) {
        reference::Matrix<B> r(s.rows, 2 * s.cols);
        reference::swiglu_backward(gate_up.values<B>(), dy.values<B>(), r);
        return r;
      };
      TestMatrix dgate_up(type, s.rows, 2 * s.cols, s.padding);
      device.swiglu_backward(gate_up, dy, dgate_up);
      check_close("dgate_up", dgate_up, backward(Truth{}), backward(A{}));

      TestMatrix over =
          TestMatrix(type, s.rows, 2 * s.cols, s.padding).from(gate_up.values<double>());
      device.swiglu_backward(over, dy, over);
      CHECK(over.bytes() == dgate_up.bytes());
    }
  });
}

TEST_CASE("swiglu: gradients are those of the forward") {
  on_devices([](Device& device) {
    TestMatrix gate_up = TestMatrix(DType::f64, 3, 10).random(1);
    const TestMatrix dy = TestMatrix(DType::f64, 3, 5).random(2);
    TestMatrix y(DType::f64, 3, 5), dgate_up(DType::f64, 3, 10);
    device.swiglu_backward(gate_up, dy, dgate_up);
    check_gradient("gate_up", gate_up, dgate_up, [&] {
      device.swiglu_forward(gate_up, y);
      return dot(y, dy);
    });
  });
}

TEST_CASE("weighted swiglu forward and backward") {
  on_all([]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    std::vector<Shape> all = device_shapes();
    all.push_back({5, 264, 8});  // whole vectors, more than one a thread
    for (const Shape& s : all) {
      if (s.rows == 1) continue;  // a single sum of the naive loop may be exact by chance
      const auto gate_up = TestMatrix(type, s.rows, 2 * s.cols, s.padding).random(1, 3);
      const auto dy = TestMatrix(type, s.rows, s.cols, s.padding).random(4);
      const auto weight = TestMatrix(sums, s.rows, 1, 1).random(3);
      const auto plain = [&]<class B>(B) {
        std::array<reference::Matrix<B>, 3> r{
            {{s.rows, s.cols}, {s.rows, 2 * s.cols}, {s.rows, 1}}};
        reference::weighted_swiglu_forward(gate_up.values<B>(), weight.values<B>(), r[0]);
        reference::weighted_swiglu_backward(gate_up.values<B>(), weight.values<B>(),
                                            dy.values<B>(), r[1], r[2]);
        return r;
      };
      const auto truth = plain(Truth{});
      const auto naive = plain(A{});
      TestMatrix y(type, s.rows, s.cols, s.padding), again(type, s.rows, s.cols, s.padding);
      TestMatrix dgate_up(type, s.rows, 2 * s.cols, s.padding), dweight(sums, s.rows, 1, 2);
      device.weighted_swiglu_forward(gate_up, weight, y);
      device.weighted_swiglu_backward(gate_up, weight, dy, dgate_up, dweight, again);
      check_close("y", y, truth[0], naive[0]);
      check_close("y again", again, truth[0], naive[0]);
      check_close("dgate_up", dgate_up, truth[1], naive[1]);
      check_close("dweight", dweight, truth[2], naive[2]);

      TestMatrix over =
          TestMatrix(type, s.rows, 2 * s.cols, s.padding).from(gate_up.values<double>());
      TestMatrix over_dy = TestMatrix(type, s.rows, s.cols, s.padding).from(dy.values<double>());
      device.weighted_swiglu_backward(over, weight, over_dy, over, dweight, over_dy);
      CHECK(over.bytes() == dgate_up.bytes());
      CHECK(over_dy.bytes() == again.bytes());
    }
  });
}

TEST_CASE("weighted swiglu: gradients are those of the forward") {
  on_devices([](Device& device) {
    TestMatrix gate_up = TestMatrix(DType::f64, 3, 10).random(1);
    TestMatrix weight = TestMatrix(DType::f64, 3, 1).random(2);
    const TestMatrix dy = TestMatrix(DType::f64, 3, 5).random(3);
    TestMatrix y(DType::f64, 3, 5), dgate_up(DType::f64, 3, 10), dweight(DType::f64, 3, 1);
    device.weighted_swiglu_backward(gate_up, weight, dy, dgate_up, dweight, y);
    const auto loss = [&] {
      device.weighted_swiglu_forward(gate_up, weight, y);
      return dot(y, dy);
    };
    check_gradient("gate_up", gate_up, dgate_up, loss);
    check_gradient("weight", weight, dweight, loss);
  });
}

TEST_CASE("swiglu: large gates do not overflow, NaN is kept") {
  on_devices([](Device& device) {
    TestMatrix gate_up = TestMatrix(DType::f32, 4, 2).filled(2);
    gate_up.set(0, 0, -1000.0);
    gate_up.set(1, 0, 1000.0);
    gate_up.set(2, 0, NAN);
    TestMatrix y(DType::f32, 4, 1), dgate_up(DType::f32, 4, 2);
    device.swiglu_forward(gate_up, y);
    device.swiglu_backward(gate_up, TestMatrix(DType::f32, 4, 1).filled(1), dgate_up);
    CHECK(y.get(0, 0) == 0);
    CHECK(y.get(1, 0) == 2000);
    CHECK(std::isnan(y.get(2, 0)));
    CHECK(dgate_up.get(0, 0) == 0);
    CHECK(dgate_up.get(1, 0) == 2);
    CHECK(std::isnan(dgate_up.get(2, 0)));
  });
}
