// SPDX-License-Identifier: Apache-2.0
// Attention on mma.sync tensor cores against the definition: compiled for 64, 128 and 256 channels.
#include "tests/kernels/cuda/attention_checks.h"
#include "tests/kernels/emu/modes.h"

namespace bdlm::test {
namespace {

AttentionKernels<bfloat16> mma_kernels(std::int64_t head_dim) {
  return {cuda::attention_forward_mma, cuda::attention_backward_mma,
          cuda::choose_attention(true, head_dim, 80, true), 8};
}

/// Between them: tiles that are full, masked and unseen; rows, keys and channels that do not fill
/// tiles; empty intervals; documents and windows; groups of 1 to 8; several sources, one of them
/// shorter than a tile, one without keys.
template <class Body>
void on_mma_cases(Body&& body) {
  const auto make = [&](std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                        std::vector<IntervalSet> sets) {
    body(AttentionCase(DType::bf16, heads, kv_heads, head_dim, std::move(sets)));
  };
  make(2, 1, 64, block_diffusion({37, 1, 70, 25}, 32));
  make(4, 2, 40, block_diffusion({75, 31}, 8, 40));
  make(8, 1, 8, {random_intervals(33, 70, 8)});
  make(1, 1, 128,
       {IntervalSet{150, std::vector<Interval>(133, Interval{3, 148})},
        random_intervals(133, 33, 5), IntervalSet{0, std::vector<Interval>(133, Interval{0, 0})}});
  make(3, 1, 80, {random_intervals(67, 129, 4)});
  make(2, 1, 256, {IntervalSet{130, std::vector<Interval>(70, Interval{0, 129})}});
  make(1, 1, 200, {random_intervals(40, 70, 6)});
  make(1, 1, 64, {IntervalSet{1, {{0, 1}}}});
}

}  // namespace

TEST_CASE("attention_forward_mma is softmax over every row's intervals") {
  emu::in_all_modes([] {
    on_mma_cases(
        [](const AttentionCase& c) { check_attention_forward(c, mma_kernels(c.shape.head_dim)); });
  });
}

TEST_CASE("attention_forward_mma of rows without keys") {
  for (const std::int64_t head_dim : {64, 72}) {
    check_attention_without_keys(mma_kernels(head_dim), head_dim);
  }
}

TEST_CASE("attention_forward_mma takes scores of any size") {
  AttentionCase c(DType::bf16, 2, 1, 32, {random_intervals(41, 150, 17)});
  c.shape.scale = 40;  // scores of several hundred, of both signs
  const AttentionKernels<bfloat16> kernels = mma_kernels(32);
  const AttentionLaunch<bfloat16> launch(c, kernels.tiles, kernels.padding);
  const AttentionOutput result = empty_attention_output(c, DType::f32, 0);
  kernels.forward(nullptr, launch.forward(result.out, result.lse));
  check_norm("out", result.out, AttentionTruth(c).out, DType::bf16, 4);
}

TEST_CASE("attention_backward_mma adds the gradient of every input") {
  emu::in_all_modes([] {
    on_mma_cases(
        [](const AttentionCase& c) { check_attention_backward(c, mma_kernels(c.shape.head_dim)); });
  });
}

TEST_CASE("attention_backward_mma of rows that have seen no key") {
  for (const std::int64_t head_dim : {64, 128, 256}) {
    check_attention_of_unseen_rows(mma_kernels(head_dim), head_dim);
  }
}

TEST_CASE("attention_mma of no rows") {
  const AttentionCase c(DType::bf16, 2, 1, 64, {IntervalSet{9, {}}});
  check_attention_forward(c, mma_kernels(64));
  check_attention_backward(c, mma_kernels(64));
}

}  // namespace bdlm::test
