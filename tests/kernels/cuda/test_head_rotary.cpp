// SPDX-License-Identifier: Apache-2.0
// The step between projection and attention: norm of heads, rotary embedding, temperature.
#include "kernels/reference/head_rotary.h"
#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

namespace {

struct Variant {
  bool norm, temperature;
  std::int64_t heads, head_dim, half;
};

// Heads in registers and read twice; all, some and no channels rotated; odd head_dim; more heads
// than a warp takes at once; heads of more lanes than one vector each fills.
const std::vector<Variant> variants{
    {false, false, 2, 8, 4},  {true, false, 3, 10, 5},  {true, true, 1, 12, 4},
    {false, true, 2, 70, 17}, {true, false, 2, 6, 0},   {true, true, 3, 7, 2},
    {true, true, 9, 128, 64}, {false, true, 5, 64, 32}, {true, false, 2, 96, 48},
    {true, true, 3, 256, 64}, {true, false, 1, 160, 0}, {true, true, 2, 640, 320}};

/// Arguments in device form, with the matrices that they point to.
template <class T>
struct Arguments {
  static constexpr std::int64_t positions_end = 29;
  TestMatrix weight, cos, sin, temperature;
  std::vector<std::int32_t> positions;
  cuda::HeadRotaryArgs<T> args;

  Arguments(std::int64_t rows, const Variant& v, std::int64_t padding)
      : weight(TestMatrix(dtype_of<T>(), v.norm ? 1 : 0, v.head_dim).random(11)),
        cos(accumulate_type(dtype_of<T>()), positions_end, v.half, padding),
        sin(accumulate_type(dtype_of<T>()), positions_end, v.half, padding),
        temperature(TestMatrix(accumulate_type(dtype_of<T>()), 1, v.temperature ? positions_end : 0)
                        .random(12)) {
    for (std::int64_t p = 0; p < positions_end; ++p) {
      for (std::int64_t j = 0; j < v.half; ++j) {
        cos.set(p, j, std::cos(double(p) / double(1 + j)));
        sin.set(p, j, std::sin(double(p) / double(1 + j)));
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      positions.push_back(static_cast<std::int32_t>(i * 5 % positions_end));
    }
    using A = accumulate_t<T>;
    args.heads = v.heads;
    args.head_dim = v.head_dim;
    args.norm_weight = v.norm ? weight.tensor().as<T>() : nullptr;
    args.norm_eps = 1e-5;
    args.positions = positions.data();
    if (v.half > 0) {
      args.cos = view<const A>(cos);
      args.sin = view<const A>(sin);
    }
    args.temperature = v.temperature ? temperature.tensor().as<A>() : nullptr;
  }

  template <class A>
  reference::HeadRotary<A> plain() const {
    return {args.heads, args.head_dim,   weight.values<A>(), args.norm_eps,
            positions,  cos.values<A>(), sin.values<A>(),    temperature.values<A>()};
  }
};

template <class T>
void check_forward(const Variant& v, std::int64_t rows, std::int64_t padding) {
  using A = accumulate_t<T>;
  const DType type = dtype_of<T>(), sums = accumulate_type(type);
  const std::int64_t cols = v.heads * v.head_dim;
  const Arguments<T> a(rows, v, padding);
  const auto x = TestMatrix(type, rows, cols, padding).random(1, 0.3);
  TestMatrix y(type, rows, cols, padding), rstd(sums, v.norm ? rows : 0, v.heads, 1);
  const auto plain = [&]<class B>(B) {
    std::pair<reference::Matrix<B>, reference::Matrix<B>> r;
    reference::head_rotary_forward(a.template plain<B>(), x.template values<B>(), r.first,
                                   r.second);
    return r;
  };
  const auto truth = plain(Truth{});
  const auto naive = plain(A{});
  cuda::head_rotary_forward<T>(nullptr, a.args, view<const T>(x), view<T>(y), view<A>(rstd));
  wait();
  check_close("y", y, truth.first, naive.first);
  if (v.norm) check_close("rstd", rstd, truth.second, naive.second);

  TestMatrix over = TestMatrix(type, rows, cols, padding).from(x.template values<double>());
  cuda::head_rotary_forward<T>(nullptr, a.args, view<const T>(over), view<T>(over), view<A>(rstd));
  wait();
  CHECK(over.bytes() == y.bytes());
}

template <class T, class D>
void check_backward(const Variant& v, std::int64_t rows, std::int64_t padding, std::int64_t most) {
  using A = accumulate_t<T>;
  const DType type = dtype_of<T>(), sums = accumulate_type(type);
  const std::int64_t cols = v.heads * v.head_dim;
  const Arguments<T> a(rows, v, padding);
  const auto x = TestMatrix(type, v.norm ? rows : 0, cols, padding).random(1, 0.3);
  TestMatrix rstd = TestMatrix(sums, v.norm ? rows : 0, v.heads, 1).random(2, 0.5);
  const auto dy = TestMatrix(dtype_of<D>(), rows, cols, padding).random(3);
  TestMatrix dx(type, rows, cols, 2 * padding), partial(sums, most, v.head_dim, 1);
  const auto start = TestMatrix(sums, v.norm ? 1 : 0, v.head_dim).random(5);
  TestMatrix dweight =
      TestMatrix(sums, v.norm ? 1 : 0, v.head_dim).from(start.template values<double>());
  const auto plain = [&]<class B>(B) {
    std::pair r{reference::Matrix<B>(), start.template values<B>()};
    reference::head_rotary_backward(a.template plain<B>(), x.template values<B>(),
                                    rstd.template values<B>(), dy.template values<B>(), r.first,
                                    r.second);
    return r;
  };
  const auto truth = plain(Truth{});
  const auto naive = plain(A{});
  cuda::head_rotary_backward<T, D>(nullptr, a.args, view<const T>(x), view<const A>(rstd),
                                   view<const D>(dy), view<T>(dx), view<A>(partial),
                                   view<A>(dweight));
  wait();
  check_close("dx", dx, truth.first, naive.first);
  check_close("dweight", dweight, truth.second, naive.second);
  CHECK(partial.padding_untouched());

  if constexpr (std::is_same_v<T, D>) {
    TestMatrix over = TestMatrix(type, rows, cols, padding).from(dy.template values<double>());
    cuda::head_rotary_backward<T, D>(nullptr, a.args, view<const T>(x), view<const A>(rstd),
                                     view<const D>(over), view<T>(over), view<A>(partial),
                                     view<A>(dweight));
    wait();
    bool same = over.padding_untouched();
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) same = same && over.get(i, j) == dx.get(i, j);
    }
    CHECK(same);
  }
}

template <class Body>
void on_variants(Body&& body) {
  for (const Variant& v : variants) {
    for (const std::int64_t rows : {0, 1, 19}) {
      for (const std::int64_t padding : {8, 3}) {  // aligned and not
        INFO("norm " << v.norm << ", " << v.heads << " heads of " << v.head_dim << ", half "
                     << v.half);
        body(v, rows, padding);
      }
    }
  }
}

}  // namespace

TEST_CASE("cuda head_rotary: forward") {
  on_types([]<class T>() {
    on_variants([](const Variant& v, std::int64_t rows, std::int64_t padding) {
      check_forward<T>(v, rows, padding);
    });
  });
}

TEST_CASE("cuda head_rotary: backward from both dtypes and over its input") {
  on_types([]<class T>() {
    on_variants([](const Variant& v, std::int64_t rows, std::int64_t padding) {
      check_backward<T, T>(v, rows, padding, 1);
      if constexpr (!std::is_same_v<T, accumulate_t<T>>) {
        check_backward<T, accumulate_t<T>>(v, rows, padding, cuda::most_partials);
      }
    });
  });
}
