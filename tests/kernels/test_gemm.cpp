// SPDX-License-Identifier: Apache-2.0
// Matrix products and biases.
#include "kernels/cpu/product_cache.h"
#include "kernels/reference/products.h"
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

constexpr Transpose both[] = {Transpose::no, Transpose::yes};

template <class A>
reference::Matrix<A> product(const TestMatrix& a, Transpose trans_a, const TestMatrix& b,
                             Transpose trans_b, const TestMatrix& c, Accumulate accumulate) {
  const auto turned = [](const TestMatrix& x, Transpose transposed) {
    auto values = x.values<A>();
    return transposed == Transpose::yes ? reference::transpose(values) : values;
  };
  auto result = accumulate == Accumulate::yes
                    ? c.values<A>()
                    : reference::Matrix<A>(c.tensor().rows, c.tensor().cols);
  reference::multiply_add(turned(a, trans_a), turned(b, trans_b), result);
  return result;
}

template <class T>
void check_product(Device& device, std::int64_t m, std::int64_t n, std::int64_t k,
                   std::int64_t padding, DType output) {
  const DType type = dtype_of<T>();
  for (const Transpose ta : both) {
    for (const Transpose tb : both) {
      for (const Accumulate accumulate : {Accumulate::no, Accumulate::yes}) {
        const bool turn_a = ta == Transpose::yes, turn_b = tb == Transpose::yes;
        const auto a = TestMatrix(type, turn_a ? k : m, turn_a ? m : k, padding).random(1);
        const auto b = TestMatrix(type, turn_b ? n : k, turn_b ? k : n, 2 * padding).random(2);
        TestMatrix c = TestMatrix(output, m, n, 3 * padding).random(3);
        if (accumulate == Accumulate::no) device.copy(TestMatrix(output, m, n).filled(NAN), c);
        const auto truth = product<Truth>(a, ta, b, tb, c, accumulate);
        const auto naive = product<accumulate_t<T>>(a, ta, b, tb, c, accumulate);
        device.gemm(a, ta, b, tb, c, accumulate);
        INFO(m << " x " << n << " x " << k << ", transposed " << turn_a << turn_b);
        check_close("gemm", c, truth, naive);
      }
    }
  }
}

}  // namespace

TEST_CASE("gemm: all dtypes, transposes, sums, odd sizes, strides") {
  struct Size {
    std::int64_t m, n, k, padding;
  };
  const std::vector<Size> sizes{{0, 5, 3, 0},   {5, 0, 3, 0},    {5, 4, 0, 2},
                                {1, 1, 1, 0},   {1, 33, 7, 1},   {37, 1, 20, 3},
                                {37, 29, 1, 0}, {37, 33, 65, 5}, {64, 96, 32, 8}};
  on_all([&]<class T>(Device& device) {
    for (const Size& s : sizes) {
      check_product<T>(device, s.m, s.n, s.k, s.padding, dtype_of<T>());
      if (std::is_same_v<T, bfloat16>) {
        check_product<T>(device, s.m, s.n, s.k, s.padding, DType::f32);
      }
    }
  });
}

TEST_CASE("gemm: large enough for several threads, and the same bits every time") {
  on_all([&]<class T>(Device& device) {
    const DType type = dtype_of<T>();
    const auto a = TestMatrix(type, 301, 131).random(1), b = TestMatrix(type, 301, 129).random(2);
    TestMatrix c = TestMatrix(accumulate_type(type), 131, 129).random(3);
    TestMatrix again = TestMatrix(accumulate_type(type), 131, 129).from(c.values<double>());
    const auto truth = product<Truth>(a, Transpose::yes, b, Transpose::no, c, Accumulate::yes);
    const auto naive =
        product<accumulate_t<T>>(a, Transpose::yes, b, Transpose::no, c, Accumulate::yes);
    device.gemm(a, Transpose::yes, b, Transpose::no, c, Accumulate::yes);
    device.gemm(a, Transpose::yes, b, Transpose::no, again, Accumulate::yes);
    check_close("gemm", c, truth, naive);
    CHECK(c.bytes() == again.bytes());
  });
}

TEST_CASE("gemm: what is not finite reaches its row and no other") {
  on_all([&]<class T>(Device& device) {
    TestMatrix a = TestMatrix(dtype_of<T>(), 40, 24).random(1);
    const auto b = TestMatrix(dtype_of<T>(), 24, 16).random(2);
    TestMatrix c(dtype_of<T>(), 40, 16);
    a.set(7, 3, NAN);
    a.set(9, 3, INFINITY);
    device.gemm(a, Transpose::no, b, Transpose::no, c, Accumulate::no);
    for (std::int64_t i = 0; i < 40; ++i) {
      CHECK(std::isnan(c.get(i, 5)) == (i == 7));
      CHECK(std::isinf(c.get(i, 5)) == (i == 9));
    }
  });
}

TEST_CASE("gemm refuses shapes and dtypes that do not fit", "[cpu]") {
  const auto device = make_cpu_device(1);
  const auto no = Transpose::no;
  TestMatrix a(DType::f32, 2, 3), b(DType::f32, 3, 4), c(DType::f32, 2, 4), d(DType::f64, 3, 4);
  CHECK_THROWS_AS(device->gemm(a, Transpose::yes, b, no, c, Accumulate::no), Error);
  CHECK_THROWS_AS(device->gemm(a, no, d, no, c, Accumulate::no), Error);
  TestMatrix wide(DType::f64, 2, 4);
  CHECK_THROWS_AS(device->gemm(a, no, b, no, wide, Accumulate::no), Error);
}

TEST_CASE("the product cache is bounded and forgets the least recently used", "[cpu]") {
  ProductCache cache(3);
  const auto shape = [](std::int64_t m) {
    return ProductShape{
        m, 4, 4, 4, 4, 4, Transpose::no, Transpose::no, DType::f32, DType::f32, Accumulate::no};
  };
  for (std::int64_t m = 1; m <= 3; ++m) cache.get(shape(m));
  cache.get(shape(1));
  cache.get(shape(4));
  CHECK(cache.size() == 3);
  CHECK(cache.contains(shape(1)));
  CHECK(!cache.contains(shape(2)));
}

TEST_CASE("bias and its gradient") {
  on_all([&]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>();
    for (const Shape& s : device_shapes()) {
      const auto bias = TestMatrix(type, 1, s.cols).random(1);
      TestMatrix y = TestMatrix(type, s.rows, s.cols, s.padding).random(2);
      auto truth = y.values<Truth>();
      auto naive = y.values<A>();
      reference::add_bias(bias.values<Truth>(), truth);
      reference::add_bias(bias.values<A>(), naive);
      device.add_bias(bias, y);
      check_close("add_bias", y, truth, naive);

      TestMatrix dbias = TestMatrix(accumulate_type(type), 1, s.cols).random(3);
      truth = dbias.values<Truth>();
      naive = dbias.values<A>();
      reference::bias_gradient(y.values<Truth>(), truth);
      reference::bias_gradient(y.values<A>(), naive);
      device.bias_gradient(y, dbias);
      check_close("bias_gradient", dbias, truth, naive);
    }
  });
}
