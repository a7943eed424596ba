// SPDX-License-Identifier: Apache-2.0
// AdamW steps and the gradient norm.
#include "kernels/reference/adamw.h"
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

namespace {

cuda::AdamWArgs device_form(const AdamW& args) {
  return {args.lr,
          args.beta1,
          args.beta2,
          args.eps,
          args.weight_decay,
          1 - std::pow(args.beta1, double(args.step)),
          1 - std::pow(args.beta2, double(args.step)),
          args.gradient_scale};
}

struct Runs {
  std::vector<std::int64_t> begin{0};
  std::vector<std::uint8_t> decay;

  explicit Runs(const std::vector<DecayRun>& runs) {
    for (const DecayRun& run : runs) {
      begin.push_back(run.begin + run.count);
      decay.push_back(run.decay ? 1 : 0);
    }
  }
};

/// Runs of 0 to 12 elements, so that vectors of elements cross their borders, and a long one.
std::vector<DecayRun> some_runs(std::int64_t n) {
  std::vector<DecayRun> runs;
  for (std::int64_t begin = 0, i = 0; begin < n; ++i) {
    const std::int64_t count = std::min(i < 40 ? i * 5 % 13 : n, n - begin);
    runs.push_back({begin, count, i % 3 != 0});
    begin += count;
  }
  return runs;
}

template <class T>
void step(const AdamW& args, const std::vector<DecayRun>& list, const TestMatrix& master,
          const TestMatrix& gradient, const TestMatrix& first, const TestMatrix& second,
          const TestMatrix& compute) {
  using A = accumulate_t<T>;
  const Runs runs(list);
  cuda::adamw<T>(nullptr, device_form(args), runs.begin.data(), runs.decay.data(),
                 static_cast<std::int64_t>(runs.decay.size()), view<A>(master),
                 view<const A>(gradient), view<A>(first), view<A>(second), view<T>(compute));
  wait();
}

}  // namespace

TEST_CASE("cuda adamw: several steps with decayed and other runs") {
  on_types([]<class T>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), state = accumulate_type(type);
    for (const std::int64_t n : {0, 5, 37, 240, 6601, 6604}) {  // whole vectors and not
      const auto runs = some_runs(n);
      TestMatrix master = TestMatrix(state, 1, n).random(1);
      TestMatrix first = TestMatrix(state, 1, n).filled(0);
      TestMatrix second = TestMatrix(state, 1, n).filled(0);
      TestMatrix compute(type, 1, n);
      auto p = master.values<Truth>(), m = first.values<Truth>(), v = second.values<Truth>();
      auto q = master.values<A>(), k = first.values<A>(), w = second.values<A>();
      AdamW args{1e-3, 0.9, 0.95, 1e-8, 0.1, 1, 0.7};
      for (args.step = 1; args.step <= 3; ++args.step) {
        const auto gradient = TestMatrix(state, 1, n).random(unsigned(args.step) + 10, 0.01);
        reference::adamw(args, runs, gradient.values<Truth>(), p, m, v);
        reference::adamw(args, runs, gradient.values<A>(), q, k, w);
        step<T>(args, runs, master, gradient, first, second, compute);
      }
      check_close("master", master, p, q);
      check_close("first", first, m, k);
      check_close("second", second, v, w);
      CHECK(compute.bytes() == TestMatrix(type, 1, n).from(master.values<double>()).bytes());
    }
  });
}

TEST_CASE("cuda adamw: compute may be the master itself") {
  const std::vector<DecayRun> runs{{0, 52, true}};
  const AdamW args{1e-2, 0.9, 0.999, 1e-8, 0.01, 3, 1};
  const auto start = TestMatrix(DType::f32, 1, 52).random(1).values<float>();
  const TestMatrix gradient = TestMatrix(DType::f32, 1, 52).random(2);
  TestMatrix master = TestMatrix(DType::f32, 1, 52).from(start);
  TestMatrix alias = TestMatrix(DType::f32, 1, 52).from(start), compute(DType::f32, 1, 52);
  for (TestMatrix* p : {&master, &alias}) {
    TestMatrix first = TestMatrix(DType::f32, 1, 52).filled(0);
    TestMatrix second = TestMatrix(DType::f32, 1, 52).filled(0);
    step<float>(args, runs, *p, gradient, first, second, p == &alias ? alias : compute);
  }
  CHECK(alias.bytes() == master.bytes());
  CHECK(compute.bytes() == master.bytes());
}

TEST_CASE("cuda adamw: small decay is not lost in float") {
  TestMatrix master = TestMatrix(DType::f32, 1, 1).filled(1), other(DType::f32, 1, 1);
  TestMatrix zero = TestMatrix(DType::f32, 1, 1).filled(0);
  TestMatrix first = TestMatrix(DType::f32, 1, 1).filled(0);
  TestMatrix second = TestMatrix(DType::f32, 1, 1).filled(0);
  step<float>({1e-4, 0.9, 0.95, 1e-8, 0.1, 1, 1}, {{0, 1, true}}, master, zero, first, second,
              other);
  CHECK(1 - master.get(0, 0) == Approx(1e-5).epsilon(4e-3));  // the float next to 1 - 1e-5
}

TEST_CASE("cuda squared_norm: in double") {
  const auto norm = []<class T>(const TestMatrix& x) {
    std::vector<double> partial(cuda::most_partials, NAN);
    double result = NAN;
    cuda::squared_norm<T>(nullptr, view<const T>(x), partial.data(), &result);
    wait();
    return result;
  };
  on_types([&]<class T>() {
    const DType type = dtype_of<T>();
    std::vector<Shape> sizes = all_shapes();
    sizes.push_back({2, 40001, 3});
    for (const Shape& s : sizes) {
      const auto x = TestMatrix(type, s.rows, s.cols, s.padding).random(1);
      const auto values = x.values<Truth>();
      Truth truth = 0;
      for (const Truth value : values.values) truth += value * value;
      const double result = norm.template operator()<T>(x);
      CHECK(result == Approx(double(truth)).epsilon(1e-14));
      CHECK(result == norm.template operator()<T>(x));
    }
    TestMatrix bad = TestMatrix(type, 1, 40000).filled(1);
    bad.set(0, 39999, INFINITY);
    CHECK(std::isinf(norm.template operator()<T>(bad)));
    bad.set(0, 17, NAN);
    CHECK(std::isnan(norm.template operator()<T>(bad)));
  });
  // 1e30^2 is beyond float.
  const auto huge = TestMatrix(DType::f32, 1, 4).filled(1e30);
  CHECK(norm.operator()<float>(huge) == Approx(4e60).epsilon(1e-6));
}
