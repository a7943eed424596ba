// SPDX-License-Identifier: Apache-2.0
// The step between projection and attention: norm of heads, rotary embedding, temperature.
#include "kernels/reference/head_rotary.h"
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

struct Variant {
  bool norm, temperature;
  std::int64_t heads, head_dim, half;
};

const std::vector<Variant> variants{{false, false, 2, 8, 4}, {true, false, 3, 10, 5},
                                    {true, true, 1, 12, 4},  {false, true, 2, 70, 17},
                                    {true, false, 2, 6, 0},  {true, true, 2, 128, 64}};

/// Arguments in device form, with the matrices that they point to.
struct Arguments {
  static constexpr std::int64_t positions_end = 29;
  TestMatrix weight, cos, sin, temperature;
  std::vector<std::int32_t> positions;
  DeviceList<std::int32_t> list;
  HeadRotary args;

  Arguments(Device& device, DType type, std::int64_t rows, const Variant& v)
      : weight(TestMatrix(type, v.norm ? 1 : 0, v.head_dim).random(11)),
        cos(accumulate_type(type), positions_end, v.half, 2),
        sin(accumulate_type(type), positions_end, v.half, 2),
        temperature(
            TestMatrix(accumulate_type(type), 1, v.temperature ? positions_end : 0).random(12)) {
    for (std::int64_t p = 0; p < positions_end; ++p) {
      for (std::int64_t j = 0; j < v.half; ++j) {
        cos.set(p, j, std::cos(double(p) / double(1 + j)));
        sin.set(p, j, std::sin(double(p) / double(1 + j)));
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      positions.push_back(static_cast<std::int32_t>(i * 5 % positions_end));
    }
    list = upload(device, positions);
    args = {v.heads, v.head_dim, weight, 1e-5, list.data, {cos, sin, temperature}};
  }

  template <class A>
  reference::HeadRotary<A> plain() const {
    return {args.heads, args.head_dim,   weight.values<A>(), args.norm_eps,
            positions,  cos.values<A>(), sin.values<A>(),    temperature.values<A>()};
  }
};

}  // namespace

TEST_CASE("head_rotary forward and backward") {
  on_all([&]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    for (const Variant& v : variants) {
      for (const std::int64_t rows : {0, 1, v.head_dim == 128 && !under_test.emulated ? 300 : 37}) {
        const std::int64_t cols = v.heads * v.head_dim, padding = rows % 5;
        Arguments a(device, type, rows, v);
        const auto x = TestMatrix(type, rows, cols, padding).random(1, 0.3);
        TestMatrix y(type, rows, cols, padding), rstd(sums, v.norm ? rows : 0, v.heads, 1);
        device.head_rotary_forward(a.args, x, y, rstd);
        const auto forward = [&]<class B>(B) {
          std::pair<reference::Matrix<B>, reference::Matrix<B>> r;
          reference::head_rotary_forward(a.plain<B>(), x.values<B>(), r.first, r.second);
          return r;
        };
        const auto truth = forward(Truth{});
        const auto naive = forward(A{});
        INFO("norm " << v.norm << ", heads " << v.heads << ", head_dim " << v.head_dim);
        check_close("y", y, truth.first, naive.first);
        if (v.norm) check_close("rstd", rstd, truth.second, naive.second);

        TestMatrix in_place = TestMatrix(type, rows, cols, 1).from(x.values<double>());
        device.head_rotary_forward(a.args, in_place, in_place, rstd);
        check_close("y over x", in_place, truth.first, naive.first);

        for (const DType dy_type : {type, sums}) {
          const auto dy = TestMatrix(dy_type, rows, cols, padding).random(3);
          TestMatrix dx(type, rows, cols, 2);
          TestMatrix dweight = TestMatrix(sums, v.norm ? 1 : 0, v.head_dim).random(5);
          const auto backward = [&]<class B>(B) {
            std::pair r{reference::Matrix<B>(), dweight.values<B>()};
            reference::head_rotary_backward(a.plain<B>(), x.values<B>(), rstd.values<B>(),
                                            dy.values<B>(), r.first, r.second);
            return r;
          };
          const auto true_gradients = backward(Truth{});
          const auto naive_gradients = backward(A{});
          device.head_rotary_backward(a.args, v.norm ? x.tensor() : Tensor{}, rstd, dy, dx,
                                      dweight);
          check_close("dx", dx, true_gradients.first, naive_gradients.first);
          check_close("dweight", dweight, true_gradients.second, naive_gradients.second);
          if (dy_type == type) {
            TestMatrix over = TestMatrix(type, rows, cols).from(dy.values<double>());
            device.head_rotary_backward(a.args, x, rstd, over, over, dweight);
            check_close("dx over dy", over, true_gradients.first, naive_gradients.first);
          }
        }
      }
    }
  });
}

TEST_CASE("head_rotary: gradients are those of the forward") {
  on_devices([](Device& device) {
    for (const Variant& v : {Variant{true, true, 2, 8, 3}, Variant{false, true, 2, 8, 4}}) {
      Arguments a(device, DType::f64, 4, v);
      TestMatrix x = TestMatrix(DType::f64, 4, 16).random(1);
      const TestMatrix dy = TestMatrix(DType::f64, 4, 16).random(2);
      TestMatrix y(DType::f64, 4, 16), dx(DType::f64, 4, 16), rstd(DType::f64, 4, 2);
      TestMatrix dweight = TestMatrix(DType::f64, v.norm ? 1 : 0, 8).filled(0);
      const auto loss = [&] {
        device.head_rotary_forward(a.args, x, y, rstd);
        return dot(y, dy);
      };
      loss();
      device.head_rotary_backward(a.args, x, rstd, dy, dx, dweight);
      check_gradient("x", x, dx, loss);
      if (v.norm) check_gradient("weight", a.weight, dweight, loss);
    }
  });
}

TEST_CASE("head_rotary refuses a position outside the table", "[cpu]") {
  const auto device = make_cpu_device(1);
  Arguments a(*device, DType::f32, 3, variants[0]);
  a.positions[2] = Arguments::positions_end;
  TestMatrix x(DType::f32, 3, 16), y(DType::f32, 3, 16);
  CHECK_THROWS_AS(device->head_rotary_forward(a.args, x, y, Tensor{}), Error);
}
