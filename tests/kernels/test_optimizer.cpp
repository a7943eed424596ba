// SPDX-License-Identifier: Apache-2.0
// AdamW steps and the gradient norm.
#include "kernels/reference/adamw.h"
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

TEST_CASE("adamw: several steps, decayed and other runs") {
  on_all([&]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), state = accumulate_type(type);
    for (const std::int64_t n : {0, 1, 37, 66001}) {
      const std::vector<DecayRun> runs{
          {0, n / 3, true}, {n / 3, 0, true}, {n / 3, n - n / 3, false}};
      const DecayRuns lists = device.upload_decay(runs);
      TestMatrix master = TestMatrix(state, 1, n).random(1);
      TestMatrix first = TestMatrix(state, 1, n).filled(0),
                 second = TestMatrix(state, 1, n).filled(0);
      TestMatrix compute(type, 1, n);
      auto p = master.values<Truth>(), m = first.values<Truth>(), v = second.values<Truth>();
      auto q = master.values<A>(), k = first.values<A>(), w = second.values<A>();
      AdamW args{1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 0.7};
      for (args.step = 1; args.step <= 4; ++args.step) {
        const auto gradient = TestMatrix(state, 1, n).random(unsigned(args.step) + 10, 0.01);
        reference::adamw(args, runs, gradient.values<Truth>(), p, m, v);
        reference::adamw(args, runs, gradient.values<A>(), q, k, w);
        device.adamw(args, lists, master, gradient, first, second, compute);
      }
      check_close("master", master, p, q);
      check_close("first", first, m, k);
      check_close("second", second, v, w);
      TestMatrix rounded(type, 1, n);
      device.copy(master, rounded);
      CHECK(compute.bytes() == rounded.bytes());
    }
  });
}

TEST_CASE("adamw: compute may be the master itself") {
  on_devices([](Device& device) {
    const DecayRuns runs = device.upload_decay({{0, 50, true}});
    const AdamW args{1e-2, 0.9, 0.999, 1e-8, 0.01, 3, 1};
    const auto start = TestMatrix(DType::f32, 1, 50).random(1).values<float>();
    const TestMatrix gradient = TestMatrix(DType::f32, 1, 50).random(2);
    TestMatrix master = TestMatrix(DType::f32, 1, 50).from(start);
    TestMatrix alias = TestMatrix(DType::f32, 1, 50).from(start), compute(DType::f32, 1, 50);
    for (TestMatrix* p : {&master, &alias}) {
      TestMatrix first = TestMatrix(DType::f32, 1, 50).filled(0);
      TestMatrix second = TestMatrix(DType::f32, 1, 50).filled(0);
      device.adamw(args, runs, *p, gradient, first, second, p == &alias ? alias : compute);
    }
    CHECK(alias.bytes() == master.bytes());
    CHECK(compute.bytes() == master.bytes());
  });
}

TEST_CASE("adamw: small decay is not lost in float") {
  on_devices([](Device& device) {
    TestMatrix master = TestMatrix(DType::f32, 1, 1).filled(1), other(DType::f32, 1, 1);
    TestMatrix zero = TestMatrix(DType::f32, 1, 1).filled(0);
    TestMatrix first = TestMatrix(DType::f32, 1, 1).filled(0);
    TestMatrix second = TestMatrix(DType::f32, 1, 1).filled(0);
    const AdamW args{1e-4, 0.9, 0.95, 1e-8, 0.1, 1, 1};
    device.adamw(args, device.upload_decay({{0, 1, true}}), master, zero, first, second, other);
    CHECK(1 - master.get(0, 0) == Approx(1e-5).epsilon(4e-3));  // the float next to 1 - 1e-5
  });
}

TEST_CASE("adamw refuses runs that leave elements out", "[cpu]") {
  const auto device = make_cpu_device(1);
  TestMatrix p = TestMatrix(DType::f32, 1, 5).filled(1);
  const auto step = [&](const std::vector<DecayRun>& runs) {
    device->adamw({1e-3, 0.9, 0.95, 1e-8, 0, 1, 1}, device->upload_decay(runs), p, p, p, p, p);
  };
  CHECK_THROWS_AS(step({{0, 4, true}}), Error);
  CHECK_THROWS_AS(step({{0, 2, true}, {3, 2, true}}), Error);
  CHECK_THROWS_AS(step({{0, 6, true}}), Error);
}

TEST_CASE("squared_norm: in double, the same for any number of threads") {
  on_all([&]<class T>(Device& device) {
    const DType type = dtype_of<T>();
    for (const Shape& s : device_shapes()) {
      const auto x = TestMatrix(type, s.rows, s.cols, s.padding).random(1);
      const auto values = x.values<Truth>();
      Truth truth = 0;
      for (const Truth value : values.values) truth += value * value;
      const double norm = device.squared_norm(x);
      CHECK(norm == Approx(double(truth)).epsilon(1e-14));
      CHECK(norm == device.squared_norm(x));
      if (device.shares_host_memory()) CHECK(norm == make_cpu_device(2)->squared_norm(x));
    }
    TestMatrix bad = TestMatrix(type, 1, 40000).filled(1);
    bad.set(0, 39999, INFINITY);
    CHECK(std::isinf(device.squared_norm(bad)));
    bad.set(0, 17, NAN);
    CHECK(std::isnan(device.squared_norm(bad)));
    const auto huge = TestMatrix(DType::f32, 1, 4).filled(1e30);  // its square is beyond float
    CHECK(device.squared_norm(huge) == Approx(4e60).epsilon(1e-6));
  });
}
