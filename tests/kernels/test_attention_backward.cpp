// SPDX-License-Identifier: Apache-2.0
// Interval attention backward against its definition, finite differences and itself in parts.
#include "tests/kernels/attention_case.h"
#include "tests/kernels/devices.h"

namespace bdlm::test {
namespace {

struct Gradients {
  TestMatrix dq;
  std::vector<TestMatrix> dfused;  // dkey and dvalue beside each other, as in AttentionCase::fused
};

/// lse and delta of the whole row, as the forward leaves them.
struct Saved {
  TestMatrix out, lse, delta;
};

Saved forward(Device& device, const AttentionCase& c) {
  const DType sum = accumulate_type(c.dtype);
  Saved saved{TestMatrix(sum, c.rows, c.q.tensor().cols, 1), TestMatrix(sum, c.rows, c.shape.heads),
              TestMatrix(sum, c.rows, c.shape.heads, 2)};
  device.attention_forward(c.shape, c.q, c.sources(device), saved.out, saved.lse, false);
  device.attention_delta(c.shape, saved.out, c.dout, saved.delta);
  return saved;
}

/// Gradients that hold `before` everywhere at first: they are added to.
Gradients backward(Device& device, const AttentionCase& c, double before) {
  const DType sum = accumulate_type(c.dtype);
  const Saved saved = forward(device, c);
  Gradients g{TestMatrix(sum, c.rows, c.q.tensor().cols, 3).filled(before), {}};
  for (std::size_t s = 0; s < c.sets.size(); ++s) {
    g.dfused.push_back(TestMatrix(sum, c.sets[s].keys, 2 * c.key_cols(), 2).filled(before));
    const Tensor& both = g.dfused[s].tensor();
    device.attention_backward(c.shape, c.q, c.source(device, s), saved.lse, c.dout, saved.delta,
                              g.dq, both.slice_cols(0, c.key_cols()),
                              both.slice_cols(c.key_cols(), c.key_cols()));
  }
  return g;
}

reference::Matrix<Truth> filled(std::int64_t rows, std::int64_t cols, Truth value) {
  reference::Matrix<Truth> x(rows, cols);
  for (Truth& element : x.values) element = value;
  return x;
}

void check_gradients(const AttentionCase& c, const Gradients& g, double before) {
  const auto q = c.q.values<Truth>(), dout = c.dout.values<Truth>();
  reference::Matrix<Truth> out(c.rows, q.cols), lse(c.rows, c.shape.heads);
  reference::Matrix<Truth> delta(c.rows, c.shape.heads);
  reference::attention_forward(c.shape, q, c.plain_sources<Truth>(), out, lse);
  reference::attention_delta(c.shape, out, dout, delta);
  reference::Matrix<Truth> dq = filled(c.rows, q.cols, before);
  for (std::size_t s = 0; s < c.sets.size(); ++s) {
    const std::int64_t keys = c.sets[s].keys, cols = c.key_cols();
    auto dkey = filled(keys, cols, before), dvalue = dkey, both = filled(keys, 2 * cols, 0);
    reference::attention_backward(c.shape, q, c.plain_source<Truth>(s), lse, dout, delta, dq, dkey,
                                  dvalue);
    for (std::int64_t k = 0; k < keys; ++k) {
      for (std::int64_t j = 0; j < cols; ++j) {
        both(k, j) = dkey(k, j);
        both(k, cols + j) = dvalue(k, j);
      }
    }
    check_norm("dkey and dvalue", g.dfused[s], both, c.dtype, 8);
  }
  check_norm("dq", g.dq, dq, c.dtype, 8);
}

}  // namespace

TEST_CASE("attention_backward adds the gradient of every input") {
  on_all([]<class T>(Device& device) {
    on_attention_cases(dtype_of<T>(), [&](const AttentionCase& c) {
      check_gradients(c, backward(device, c, 0.25), 0.25);
    });
  });
}

TEST_CASE("attention_backward serves any number of query heads a key head") {
  on_all([]<class T>(Device& device) {
    for (const std::int64_t group : {1, 2, 3, 4, 5, 6, 7, 8, 12}) {
      const AttentionCase c(dtype_of<T>(), 2 * group, 2, 24, {random_intervals(45, 70, 7)});
      check_gradients(c, backward(device, c, 0), 0);
    }
  });
}

TEST_CASE("attention_backward by finite differences") {
  on_devices([](Device& device) {
    AttentionCase c(DType::f64, 2, 1, 4, block_diffusion({5, 4}, 3));
    const Gradients g = backward(device, c, 0);
    const auto loss = [&] {
      TestMatrix out(DType::f64, c.rows, c.q.tensor().cols), lse(DType::f64, c.rows, c.shape.heads);
      device.attention_forward(c.shape, c.q, c.sources(device), out, lse, false);
      return dot(out, c.dout);
    };
    check_gradient("q", c.q, g.dq, loss);
    check_gradient("clean keys and values", c.fused[0], g.dfused[0], loss);
    check_gradient("corrupted keys and values", c.fused[1], g.dfused[1], loss);
  });
}

TEST_CASE("attention_backward ignores rows that have seen no key") {
  on_all([]<class T>(Device& device) {
    AttentionCase c(dtype_of<T>(), 2, 1, 32, {IntervalSet{40, std::vector<Interval>(40, {0, 40})}});
    const Saved saved = forward(device, c);
    TestMatrix lse = TestMatrix(saved.lse.tensor().dtype, c.rows, 2)
                         .filled(-std::numeric_limits<double>::infinity());
    TestMatrix delta = TestMatrix(saved.lse.tensor().dtype, c.rows, 2)
                           .filled(std::numeric_limits<double>::quiet_NaN());  // never read
    const DType sum = accumulate_type(c.dtype);
    TestMatrix dq = TestMatrix(sum, c.rows, 64).filled(1);
    TestMatrix dkey = TestMatrix(sum, 40, 32).filled(2);
    TestMatrix dvalue = TestMatrix(sum, 40, 32).filled(3);
    device.attention_backward(c.shape, c.q, c.source(device, 0), lse, c.dout, delta, dq, dkey,
                              dvalue);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      CHECK(dq.get(i, 40) == 1);
      CHECK(dkey.get(i, 5) == 2);
      CHECK(dvalue.get(i, 6) == 3);
    }
  });
}

TEST_CASE("attention gives the same bits again") {
  on_all([]<class T>(Device& device) {
    // One key head and enough work for three threads: the queries are cut into chunks.
    const int length = under_test.emulated ? 90 : 300;
    const AttentionCase c(dtype_of<T>(), 2, 1, 64, block_diffusion({length}, 20));
    const Gradients first = backward(device, c, 0.5), second = backward(device, c, 0.5);
    CHECK(first.dq.bytes() == second.dq.bytes());
    CHECK(first.dfused[0].bytes() == second.dfused[0].bytes());
    CHECK(first.dfused[1].bytes() == second.dfused[1].bytes());
    check_gradients(c, first, 0.5);
  });
}

TEST_CASE("attention_delta is the dot product of output and its gradient") {
  on_all([]<class T>(Device& device) {
    const DType sum = accumulate_type(dtype_of<T>());
    const AttentionShape shape{6, 2, 20, 1};
    const TestMatrix out = TestMatrix(dtype_of<T>(), 33, 120, 1).random(21);
    const TestMatrix dout = TestMatrix(dtype_of<T>(), 33, 120, 4).random(22);
    TestMatrix delta(sum, 33, 6, 2);
    device.attention_delta(shape, out, dout, delta);
    reference::Matrix<Truth> truth(33, 6);
    reference::attention_delta(shape, out.values<Truth>(), dout.values<Truth>(), truth);
    check_norm("delta", delta, truth, sum, 8);
  });
}

}  // namespace bdlm::test
