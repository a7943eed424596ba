// SPDX-License-Identifier: Apache-2.0
// The Hopper attention kernels against the definition, for both head sizes that they serve.
#include "kernels/cuda/attention_wgmma_tiles.h"
#include "tests/kernels/cuda/attention_checks.h"
#include "tests/kernels/emu/modes.h"

namespace bdlm::test {
namespace {

AttentionKernels<bfloat16> hopper(std::int64_t head_dim) {
  const cuda::WgmmaTiles tiles = cuda::wgmma_tiles(head_dim);
  return {cuda::attention_forward_wgmma,
          cuda::attention_backward_wgmma,
          {cuda::AttentionKernel::wgmma, tiles.forward, tiles.backward_query, tiles.backward_key},
          8};
}
AttentionKernels<bfloat16> hopper(const AttentionCase& c) { return hopper(c.shape.head_dim); }

IntervalSet all_see(std::int64_t rows, Interval seen, std::int64_t keys) {
  return {keys, std::vector<Interval>(static_cast<std::size_t>(rows), seen)};
}

/// Documents and windows; tiles that are full, masked and empty; rings of buffers that go round;
/// rows and keys that do not fill tiles, a source shorter than a tile, one without keys.
template <class Body>
void on_hopper_cases(Body&& body) {
  const auto make = [&](std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                        std::vector<IntervalSet> sets) {
    body(AttentionCase(DType::bf16, heads, kv_heads, head_dim, std::move(sets)));
  };
  make(2, 1, 64, block_diffusion({37, 1, 70, 25}, 32));
  make(1, 1, 128, block_diffusion({150, 31}, 8, 40));
  make(1, 1, 64, {all_see(201, {0, 700}, 700), random_intervals(201, 33, 5), all_see(201, {}, 0)});
  make(2, 2, 128, {random_intervals(129, 390, 4)});
  make(1, 1, 128, {all_see(330, {3, 129}, 130)});
  make(1, 1, 64, {IntervalSet{1, {{0, 1}}}});
}

AttentionLaunch<bfloat16> launch_of(const AttentionCase& c) { return {c, hopper(c).tiles, 8}; }

TestMatrix filled(DType type, std::int64_t rows, std::int64_t cols, double value) {
  return TestMatrix(type, rows, cols).filled(value);
}

}  // namespace

TEST_CASE("attention_forward_wgmma is softmax over every row's intervals") {
  emu::in_all_modes([] {
    on_hopper_cases([](const AttentionCase& c) { check_attention_forward(c, hopper(c)); });
  });
}

TEST_CASE("attention_backward_wgmma adds the gradient of every input") {
  emu::in_all_modes([] {
    on_hopper_cases([](const AttentionCase& c) { check_attention_backward(c, hopper(c)); });
  });
}

TEST_CASE("attention_wgmma serves any number of query heads a key head") {
  for (const std::int64_t group : {1, 2, 3, 4, 5, 6, 7, 8}) {
    const std::int64_t head_dim = group % 2 == 0 ? 128 : 64;
    const AttentionCase c(DType::bf16, 2 * group, 2, head_dim, {random_intervals(45, 70, 7)});
    check_attention_forward(c, hopper(c));
    check_attention_backward(c, hopper(c), 0);
  }
}

TEST_CASE("attention_forward_wgmma takes as many sources as a launch has and resumes") {
  for (const std::int64_t head_dim : {64, 128}) {
    const IntervalSet whole = random_intervals(139, 300, 11);
    const AttentionCase c(DType::bf16, 2, 1, head_dim, split(whole, {130, 131, 200}));
    REQUIRE(c.sets.size() == cuda::most_sources);
    check_attention_forward(c, hopper(c));

    const AttentionTruth truth(c);
    const AttentionLaunch<bfloat16> launch = launch_of(c);
    AttentionOutput result = empty_attention_output(c, DType::f32, 2);
    cuda::attention_forward_wgmma(nullptr, launch.forward(0, 3, result.out, result.lse, false));
    cuda::attention_forward_wgmma(nullptr, launch.forward(0, 0, result.out, result.lse, true));
    cuda::attention_forward_wgmma(nullptr, launch.forward(3, 4, result.out, result.lse, true));
    check_attention_output(c, truth, result);
  }
}

TEST_CASE("attention_forward_wgmma of rows without keys is 0 with log-sum-exp -infinity") {
  for (const std::int64_t head_dim : {64, 128}) {
    const AttentionCase c(DType::bf16, 2, 1, head_dim,
                          {all_see(40, {}, 0), all_see(40, {7, 2}, 9)});
    const AttentionLaunch<bfloat16> launch = launch_of(c);
    AttentionOutput result = empty_attention_output(c, DType::f32, 4);
    for (const bool again : {false, true}) {
      const std::size_t last = again ? 0 : 2;
      cuda::attention_forward_wgmma(nullptr,
                                    launch.forward(0, last, result.out, result.lse, again));
      for (std::int64_t i = 0; i < c.rows; ++i) {
        CHECK(result.out.get(i, 0) == 0);
        CHECK(result.out.get(i, 2 * head_dim - 1) == 0);
        CHECK(result.lse.get(i, 1) == -std::numeric_limits<double>::infinity());
      }
    }
  }
}

TEST_CASE("attention_backward_wgmma ignores rows that have seen no key") {
  for (const std::int64_t head_dim : {64, 128}) {
    const AttentionCase c(DType::bf16, 2, 1, head_dim, {all_see(40, {0, 40}, 40)});
    const AttentionLaunch<bfloat16> launch = launch_of(c);
    const TestMatrix lse = filled(DType::f32, 40, 2, -std::numeric_limits<double>::infinity());
    const TestMatrix delta = filled(DType::f32, 40, 2, std::numeric_limits<double>::quiet_NaN());
    const TestMatrix dq = filled(DType::f32, 40, 2 * head_dim, 1);
    const TestMatrix dfused = filled(DType::f32, 40, 2 * head_dim, 2);
    cuda::attention_backward_wgmma(nullptr, launch.backward(0, lse, delta, dq, dfused));
    for (std::int64_t i = 0; i < c.rows; ++i) {
      CHECK(dq.get(i, head_dim + 3) == 1);
      CHECK(dfused.get(i, 5) == 2);
      CHECK(dfused.get(i, head_dim + 6) == 2);
    }
  }
}

TEST_CASE("attention_forward_wgmma takes scores of any size and passes NaN on") {
  for (const std::int64_t head_dim : {64, 128}) {
    AttentionCase large(DType::bf16, 2, 1, head_dim, {random_intervals(41, 290, 17)});
    large.shape.scale = 40;  // scores of several hundred, of both signs
    AttentionOutput result = empty_attention_output(large, DType::bf16, 8);
    cuda::attention_forward_wgmma(nullptr, launch_of(large).forward(result.out, result.lse));
    for (std::int64_t i = 0; i < large.rows; ++i) {
      CHECK(std::isfinite(result.out.get(i, 0)));
      CHECK(!std::isnan(result.lse.get(i, 0)));
    }

    for (const std::int64_t col : {std::int64_t{0}, head_dim}) {  // in a key, in a value
      AttentionCase c(DType::bf16, 1, 1, head_dim, {all_see(140, {3, 140}, 140)});
      c.sets[0].visible[50] = {21, 140};
      c.fused[0].set(20, col, std::numeric_limits<double>::quiet_NaN());
      AttentionOutput seen = empty_attention_output(c, DType::f32, 1);
      cuda::attention_forward_wgmma(nullptr, launch_of(c).forward(seen.out, seen.lse));
      CHECK(std::isnan(seen.out.get(49, 0)));
      CHECK(std::isfinite(seen.lse.get(50, 0)));
      CHECK(std::isnan(seen.out.get(51, 0)));
    }
  }
}

TEST_CASE("attention_backward_wgmma gives the same bits again") {
  for (const std::int64_t head_dim : {64, 128}) {
    const AttentionCase c(DType::bf16, 2, 1, head_dim, block_diffusion({150}, 20));
    const AttentionTruth truth(c);
    const auto once = [&] {
      return attention_gradients(c, truth.saved_lse, truth.saved_delta, hopper(c), 0.5);
    };
    const AttentionGradients first = once();
    emu::in_all_modes([&] {  // threads and copies in another order
      const AttentionGradients again = once();
      CHECK((first.dq.bytes() == again.dq.bytes()));
      CHECK((first.dfused[0].bytes() == again.dfused[0].bytes()));
      CHECK((first.dfused[1].bytes() == again.dfused[1].bytes()));
    });
  }
}

TEST_CASE("attention_forward_wgmma writes rows of any alignment") {
  const AttentionCase c(DType::bf16, 2, 1, 64, {random_intervals(41, 60, 19)});
  AttentionOutput result = empty_attention_output(c, DType::bf16, 3);
  cuda::attention_forward_wgmma(nullptr, launch_of(c).forward(result.out, result.lse));
  check_attention_output(c, AttentionTruth(c), result);
}

TEST_CASE("attention_wgmma is chosen on Hopper for its head sizes") {
  using cuda::AttentionKernel;
  for (const std::int64_t head_dim : {64, 128}) {
    const cuda::AttentionChoice choice = cuda::choose_attention(true, head_dim, 90, true);
    CHECK(choice.kernel == AttentionKernel::wgmma);
    CHECK(choice.forward == cuda::wgmma_tiles(head_dim).forward);
    CHECK(choice.backward_query == cuda::wgmma_tiles(head_dim).backward_query);
    CHECK(choice.backward_key == cuda::wgmma_tiles(head_dim).backward_key);
  }
  CHECK(cuda::choose_attention(true, 96, 90, true).kernel == AttentionKernel::mma);
  CHECK(cuda::choose_attention(true, 128, 90, false).kernel == AttentionKernel::simple);
}

TEST_CASE("attention_wgmma of no rows does nothing") {
  const AttentionCase c(DType::bf16, 1, 1, 64, {IntervalSet{5, {}}});
  AttentionOutput result = empty_attention_output(c, DType::bf16, 8);
  const AttentionLaunch<bfloat16> launch = launch_of(c);
  cuda::attention_forward_wgmma(nullptr, launch.forward(result.out, result.lse));
  const TestMatrix none(DType::f32, 0, 1), dq(DType::f32, 0, 64);
  const TestMatrix dfused = filled(DType::f32, 5, 128, 3);
  cuda::attention_backward_wgmma(nullptr, launch.backward(0, none, none, dq, dfused));
  CHECK(dfused.get(4, 127) == 3);
}

}  // namespace bdlm::test
