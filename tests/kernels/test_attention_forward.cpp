// SPDX-License-Identifier: Apache-2.0
// Interval attention forward against its definition in long double.
#include "tests/kernels/attention_case.h"
#include "tests/kernels/devices.h"

namespace bdlm::test {
namespace {

struct Output {
  TestMatrix out, lse;
};

Output empty_output(const AttentionCase& c, DType out_type) {
  return {TestMatrix(out_type, c.rows, c.shape.heads * c.shape.head_dim, 2),
          TestMatrix(accumulate_type(c.dtype), c.rows, c.shape.heads, 1)};
}

Output forward(Device& device, const AttentionCase& c, DType out_type) {
  Output result = empty_output(c, out_type);
  device.attention_forward(c.shape, c.q, c.sources(device), result.out, result.lse, false);
  return result;
}

void check_output(const AttentionCase& c, const Output& result) {
  reference::Matrix<Truth> out(c.rows, c.q.tensor().cols), lse(c.rows, c.shape.heads);
  reference::attention_forward(c.shape, c.q.values<Truth>(), c.plain_sources<Truth>(), out, lse);
  check_norm("out", result.out, out, c.dtype, 4);
  // Scores are sums in the accumulate type: exact inputs, so its rounding counts.
  check_norm("lse", result.lse, lse, accumulate_type(c.dtype), c.dtype == DType::bf16 ? 32 : 4);
}

}  // namespace

TEST_CASE("attention_forward is softmax over every row's intervals") {
  on_all([]<class T>(Device& device) {
    const DType type = dtype_of<T>();
    on_attention_cases(type, [&](const AttentionCase& c) {
      check_output(c, forward(device, c, type));
      if (type != accumulate_type(type)) check_output(c, forward(device, c, accumulate_type(type)));
    });
  });
}

TEST_CASE("attention_forward serves any number of query heads a key head") {
  on_all([]<class T>(Device& device) {
    for (const std::int64_t group : {1, 2, 3, 4, 5, 6, 7, 8, 12}) {
      const AttentionCase c(dtype_of<T>(), 2 * group, 2, 24, {random_intervals(45, 70, 7)});
      check_output(c, forward(device, c, dtype_of<T>()));
    }
  });
}

TEST_CASE("attention_forward resumed over shards equals one call") {
  on_all([]<class T>(Device& device) {
    const DType sum = accumulate_type(dtype_of<T>());
    for (const IntervalSet& whole :
         {block_diffusion({97, 60}, 16)[0], random_intervals(99, 157, 11)}) {
      const AttentionCase at_once(dtype_of<T>(), 4, 2, 32, {whole});
      AttentionCase shards(dtype_of<T>(), 4, 2, 32, split(whole, {50, 51}));
      std::int64_t first = 0;
      for (TestMatrix& fused : shards.fused) {  // the same keys
        for (std::int64_t k = 0; k < fused.tensor().rows; ++k) {
          for (std::int64_t c = 0; c < fused.tensor().cols; ++c) {
            fused.set(k, c, at_once.fused[0].get(first + k, c));
          }
        }
        first += fused.tensor().rows;
      }
      check_output(at_once, forward(device, shards, sum));  // several sources in one call
      Output result = empty_output(shards, sum);
      bool resume = false;
      for (const KeySource& source : shards.sources(device)) {
        device.attention_forward(shards.shape, shards.q, {&source, 1}, result.out, result.lse,
                                 resume);
        resume = true;
      }
      check_output(at_once, result);
    }
  });
}

TEST_CASE("attention_forward of rows without keys is 0 with log-sum-exp -infinity") {
  on_all([]<class T>(Device& device) {
    const AttentionCase c(dtype_of<T>(), 2, 1, 32,
                          {IntervalSet{0, std::vector<Interval>(40)},
                           IntervalSet{9, std::vector<Interval>(40, Interval{7, 2})}});
    Output result = forward(device, c, dtype_of<T>());
    for (const bool again : {false, true}) {
      if (again) {
        device.attention_forward(c.shape, c.q, c.sources(device), result.out, result.lse, true);
      }
      for (std::int64_t i = 0; i < c.rows; ++i) {
        CHECK(result.out.get(i, 0) == 0);
        CHECK(result.out.get(i, 63) == 0);
        CHECK(result.lse.get(i, 1) == -std::numeric_limits<double>::infinity());
      }
    }
  });
}

TEST_CASE("attention_forward resumed without sources keeps the result") {
  on_all([]<class T>(Device& device) {
    const AttentionCase c(dtype_of<T>(), 2, 1, 24, {random_intervals(41, 50, 13)});
    Output result = forward(device, c, accumulate_type(dtype_of<T>()));
    device.attention_forward(c.shape, c.q, {}, result.out, result.lse, true);
    check_output(c, result);
  });
}

TEST_CASE("attention_forward takes scores of any size") {
  on_all([]<class T>(Device& device) {
    AttentionCase c(dtype_of<T>(), 2, 1, 32, {random_intervals(41, 150, 17)});
    c.shape.scale = 40;  // scores of several hundred, of both signs
    const Output result = forward(device, c, dtype_of<T>());
    for (std::int64_t i = 0; i < c.rows; ++i) {
      CHECK(std::isfinite(result.out.get(i, 0)));
      CHECK(!std::isnan(result.lse.get(i, 0)));
    }
  });
}

TEST_CASE("attention_forward passes NaN on to the rows that see it") {
  on_all([]<class T>(Device& device) {
    for (const std::int64_t col : {0, 32}) {  // in a key, in a value
      AttentionCase c(dtype_of<T>(), 1, 1, 32, block_diffusion({70, 80}, 8));
      c.fused[0].set(20, col, std::numeric_limits<double>::quiet_NaN());
      const Output result = forward(device, c, dtype_of<T>());
      for (std::int64_t i = 0; i < c.rows; ++i) {
        const Interval seen = c.sets[0].visible[static_cast<std::size_t>(i)];
        const bool sees = seen.lo <= 20 && 20 < seen.hi;
        if (sees) CHECK(std::isnan(result.out.get(i, 0)));
        const std::int64_t position = i % 150;
        if (position >= 70) CHECK(std::isfinite(result.lse.get(i, 0)));  // another document
      }
    }
  });
}

TEST_CASE("attention refuses intervals beyond the source and unlike shapes", "[cpu]") {
  const auto device = make_cpu_device(1);
  AttentionCase c(DType::f32, 2, 1, 8, {IntervalSet{5, {{0, 5}, {2, 6}}}});
  CHECK_THROWS_WITH(forward(*device, c, DType::f32),
                    "attention: query row 1 reads keys [2, 6) of a source of 5 keys");
  c.sets[0].visible[1] = {2, 5};
  CHECK_NOTHROW(forward(*device, c, DType::f32));
  CHECK_THROWS_AS(forward(*device, c, DType::bf16), Error);
  c.shape.head_dim = 4;
  CHECK_THROWS_AS(forward(*device, c, DType::f32), Error);
}

}  // namespace bdlm::test
