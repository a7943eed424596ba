// SPDX-License-Identifier: Apache-2.0
// Attention without tensor cores, and delta, of every type against the definitions.
#include "tests/kernels/cuda/attention_checks.h"
#include "tests/kernels/emu/modes.h"

namespace bdlm::test {
namespace {

template <class T>
AttentionKernels<T> simple_kernels() {
  return {cuda::attention_forward_simple<T>, cuda::attention_backward_simple<T>,
          cuda::choose_attention(false, 8, 0, false), 3};
}

template <class Body>
void on_types(Body&& body) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    dispatch(type, [&]<class T>() { body.template operator()<T>(type); });
  }
}

/// Smaller than on_attention_cases: a thread is emulated at a time.
template <class Body>
void on_small_cases(DType type, Body&& body) {
  body(AttentionCase(type, 2, 1, 20, block_diffusion({37, 1, 20, 5}, 16)));
  body(AttentionCase(type, 4, 2, 5, block_diffusion({35, 6}, 4, 9)));
  body(AttentionCase(type, 3, 3, 8, {random_intervals(40, 70, 4), random_intervals(40, 33, 5)}));
  body(AttentionCase(type, 1, 1, 130, {IntervalSet{50, {{3, 48}, {4, 48}, {9, 9}}}}));
  body(AttentionCase(type, 1, 1, 1, {IntervalSet{1, {{0, 1}}}}));
}

}  // namespace

TEST_CASE("attention_forward_simple is softmax over every row's intervals") {
  on_types([]<class T>(DType type) {
    emu::in_all_modes([&] {
      on_small_cases(
          type, [](const AttentionCase& c) { check_attention_forward(c, simple_kernels<T>()); });
    });
  });
}

TEST_CASE("attention_backward_simple adds the gradient of every input") {
  on_types([]<class T>(DType type) {
    emu::in_all_modes([&] {
      on_small_cases(
          type, [](const AttentionCase& c) { check_attention_backward(c, simple_kernels<T>()); });
    });
  });
}

TEST_CASE("attention_simple takes 512 channels and any number of query heads a key head") {
  const AttentionCase wide(DType::f64, 1, 1, 512, {random_intervals(5, 40, 6)});
  check_attention_forward(wide, simple_kernels<double>());
  check_attention_backward(wide, simple_kernels<double>());
  for (const std::int64_t group : {1, 3, 8}) {
    const AttentionCase c(DType::f32, 2 * group, 2, 6, {random_intervals(35, 40, 7)});
    check_attention_forward(c, simple_kernels<float>());
    check_attention_backward(c, simple_kernels<float>());
  }
}

TEST_CASE("attention_simple of no rows or no keys") {
  const AttentionCase no_rows(DType::f32, 2, 1, 8, {IntervalSet{9, {}}});
  check_attention_forward(no_rows, simple_kernels<float>());
  check_attention_backward(no_rows, simple_kernels<float>());
  check_attention_without_keys(simple_kernels<float>(), 8);
  check_attention_of_unseen_rows(simple_kernels<double>(), 8);
  check_attention_of_unseen_rows(simple_kernels<bfloat16>(), 8);
}

TEST_CASE("attention_delta is the dot product of output and its gradient") {
  const auto check = []<class T, class O>(std::int64_t head_dim, std::int64_t padding) {
    const DType type = dtype_of<T>(), sum = accumulate_type(type);
    const std::int64_t heads = 3, rows = 13;
    const TestMatrix out = TestMatrix(dtype_of<O>(), rows, heads * head_dim, padding).random(21);
    const TestMatrix dout = TestMatrix(type, rows, heads * head_dim, padding).random(22);
    const TestMatrix delta(sum, rows, heads, 2);
    const AttentionShape shape{heads, 1, head_dim, 1};
    cuda::attention_delta<T, O>(
        nullptr, {static_cast<std::int32_t>(heads), 1, static_cast<std::int32_t>(head_dim), 1},
        view_of<const O>(out), view_of<const T>(dout), view_of<cuda::sum_t<T>>(delta));
    reference::Matrix<Truth> truth(rows, heads);
    reference::attention_delta(shape, out.values<Truth>(), dout.values<Truth>(), truth);
    check_norm("delta", delta, truth, sum, 8);
  };
  for (const std::int64_t head_dim : {1, 20, 64, 128, 320}) {
    for (const std::int64_t padding : {3, 8}) {
      check.operator()<double, double>(head_dim, padding);
      check.operator()<float, float>(head_dim, padding);
      check.operator()<bfloat16, bfloat16>(head_dim, padding);
      check.operator()<bfloat16, float>(head_dim, padding);
    }
  }
}

}  // namespace bdlm::test
