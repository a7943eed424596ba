// SPDX-License-Identifier: Apache-2.0
// The gated unit.
#include "kernels/reference/swiglu.h"
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

TEST_CASE("cuda swiglu: forward and backward and backward in place") {
  on_types([]<class T>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>();
    for (const Shape& s : all_shapes()) {
      const auto gate_up = TestMatrix(type, s.rows, 2 * s.cols, s.padding).random(1, 3);
      TestMatrix y(type, s.rows, s.cols, s.padding);
      const auto forward = [&]<class B>(B) {
        reference::Matrix<B> r(s.rows, s.cols);
        reference::swiglu_forward(gate_up.values<B>(), r);
        return r;
      };
      cuda::swiglu_forward<T>(nullptr, view<const T>(gate_up), {}, view<T>(y));
      wait();
      check_close("y", y, forward(Truth{}), forward(A{}));

      const auto dy = TestMatrix(type, s.rows, s.cols, s.padding).random(2);
      const auto backward = [&]<class B>(B) {
        reference::Matrix<B> r(s.rows, 2 * s.cols);
        reference::swiglu_backward(gate_up.values<B>(), dy.values<B>(), r);
        return r;
      };
      TestMatrix dgate_up(type, s.rows, 2 * s.cols, s.padding);
      cuda::swiglu_backward<T>(nullptr, view<const T>(gate_up), view<const T>(dy),
                               view<T>(dgate_up));
      wait();
      check_close("dgate_up", dgate_up, backward(Truth{}), backward(A{}));

      TestMatrix over =
          TestMatrix(type, s.rows, 2 * s.cols, s.padding).from(gate_up.values<double>());
      cuda::swiglu_backward<T>(nullptr, view<const T>(over), view<const T>(dy), view<T>(over));
      wait();
      CHECK(over.bytes() == dgate_up.bytes());
    }
  });
}

TEST_CASE("cuda weighted_swiglu: forward and backward") {
  on_types([]<class T>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    for (const Shape& s : all_shapes()) {
      if (s.rows == 1) continue;  // a single sum of the naive loop may be exact by chance
      const auto gate_up = TestMatrix(type, s.rows, 2 * s.cols, s.padding).random(1, 3);
      const auto dy = TestMatrix(type, s.rows, s.cols, s.padding).random(2);
      const auto weight = TestMatrix(sums, s.rows, 1, 1).random(3);
      TestMatrix y(type, s.rows, s.cols, s.padding), again(type, s.rows, s.cols, s.padding);
      TestMatrix dgate_up(type, s.rows, 2 * s.cols, s.padding), dweight(sums, s.rows, 1, 2);
      cuda::swiglu_forward<T>(nullptr, view<const T>(gate_up), view<const A>(weight), view<T>(y));
      cuda::weighted_swiglu_backward<T>(nullptr, view<const T>(gate_up), view<const A>(weight),
                                        view<const T>(dy), view<T>(dgate_up), view<A>(dweight),
                                        view<T>(again));
      wait();
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
      check_close("y", y, truth[0], naive[0]);
      check_close("y again", again, truth[0], naive[0]);
      check_close("dgate_up", dgate_up, truth[1], naive[1]);
      check_close("dweight", dweight, truth[2], naive[2]);
    }
  });
}

TEST_CASE("cuda swiglu: large gates do not overflow and NaN is kept") {
  TestMatrix gate_up = TestMatrix(DType::f32, 4, 2).filled(2);
  gate_up.set(0, 0, -1000.0);
  gate_up.set(1, 0, 1000.0);
  gate_up.set(2, 0, NAN);
  const TestMatrix dy = TestMatrix(DType::f32, 4, 1).filled(1);
  TestMatrix y(DType::f32, 4, 1), dgate_up(DType::f32, 4, 2);
  cuda::swiglu_forward<float>(nullptr, view<const float>(gate_up), {}, view<float>(y));
  cuda::swiglu_backward<float>(nullptr, view<const float>(gate_up), view<const float>(dy),
                               view<float>(dgate_up));
  wait();
  CHECK(y.get(0, 0) == 0);
  CHECK(y.get(1, 0) == 2000);
  CHECK(std::isnan(y.get(2, 0)));
  CHECK(dgate_up.get(0, 0) == 0);
  CHECK(dgate_up.get(1, 0) == 2);
  CHECK(std::isnan(dgate_up.get(2, 0)));
}
