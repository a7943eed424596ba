// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts, and the cross-entropy of a vocabulary that ranks share out. Shapes: Qwen3
// 30B-A3B (hidden 2048, 128 experts of width 768, 8 a row), and a quarter of its vocabulary of
// 151936. Rows choose their experts at random: groups are as ragged as that makes them.
#include <vector>

#include "kernels/router.h"
#include "trainer/kernel_timer.h"

namespace bdlm {
namespace {

struct Mixture {
  std::int64_t rows, hidden, width;
  Router router;
  std::int64_t pairs() const { return rows * router.chosen; }
};

Mixture mixture_of(const KernelTimer& t) {
  if (t.quick) return {24, 64, 32, {.experts = 8, .chosen = 2}};
  return {32768, 2048, 768, {.experts = 128, .chosen = 8}};
}

double list_bytes(std::int64_t count) { return 4.0 * static_cast<double>(count); }

std::vector<std::int64_t> ragged_groups(KernelTimer& t, const Mixture& m) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(m.router.experts), 0);
  for (const std::int32_t expert : t.numbers(m.pairs(), m.router.experts))
    ++rows[static_cast<std::size_t>(expert)];
  return rows;
}

/// The experts' linear layer with the two products of its backward pass.
void time_experts(KernelTimer& t, const Mixture& m, const std::string& name, std::int64_t in,
                  std::int64_t out) {
  const auto groups = ragged_groups(t, m);
  const Buffer x = t.random(m.pairs(), in, DType::bf16), y = t.random(m.pairs(), out, DType::bf16);
  const Buffer w = t.random(m.router.experts * out, in, DType::bf16);
  const Buffer dw = t.zeros(m.router.experts * out, in, DType::f32);
  const std::string shape =
      fmt::format("{} x {} to {}, {} experts, {}", m.pairs(), in, out, m.router.experts, name);
  const double flops = 2.0 * static_cast<double>(m.pairs()) * static_cast<double>(in * out);
  const Work forward{bytes_of(x, y, w), flops};
  t.time("grouped_gemm", shape, DType::bf16, forward,
         [&] { t.device.grouped_gemm(x, groups, w, Transpose::yes, y); });
  t.time("grouped_gemm_grad", shape + ", dw +=", DType::bf16, {bytes_of(x, y, dw, dw), flops},
         [&] { t.device.grouped_gemm_gradient(y, x, groups, dw); });
  t.time("grouped_gemm", shape + ", dx", DType::bf16, forward,
         [&] { t.device.grouped_gemm(y, groups, w, Transpose::no, x); });
}

void time_router(KernelTimer& t, const Mixture& m) {
  const Router& router = m.router;
  const Buffer logits = t.random(m.rows, router.experts, DType::f32);
  const Buffer probabilities = t.zeros(m.rows, router.experts, DType::f32);
  const Buffer weights = t.random(m.rows, router.chosen, DType::f32);
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(m.pairs()));
  const std::string shape =
      fmt::format("{} x {}, {} chosen", m.rows, router.experts, router.chosen);
  const double list = list_bytes(m.pairs());
  t.time("choose_experts", shape + ", waits", DType::f32,
         {bytes_of(logits, probabilities) + list, 0},
         [&] { t.device.choose_experts(router, logits, {}, probabilities, chosen); });
  const auto here = t.device.upload(std::span<const std::int32_t>(chosen));
  t.time("expert_weights", shape, DType::f32, {bytes_of(weights, weights) + list, 0},
         [&] { t.device.expert_weights(router, probabilities, here.data, weights); });
  t.time("router_backward", shape, DType::f32, {bytes_of(probabilities, weights, logits) + list, 0},
         [&] {
           t.device.router_backward(router, probabilities, here.data, weights, {}, nullptr, logits);
         });
}

void time_return(KernelTimer& t, const Mixture& m) {
  const Buffer x = t.random(m.pairs(), m.hidden, DType::bf16);
  const Buffer y = t.zeros(m.rows, m.hidden, DType::bf16);
  const auto host = t.numbers(m.pairs(), m.pairs(), true);
  const auto places = t.device.upload(std::span<const std::int32_t>(host));
  t.time("add_gathered_rows", fmt::format("{} x {} of {} each", m.rows, m.hidden, m.router.chosen),
         DType::bf16, {bytes_of(x, y, y) + list_bytes(m.pairs()), 0},
         [&] { t.device.add_gathered_rows(x, places.data, m.router.chosen, y); });
}

void time_weighted_swiglu(KernelTimer& t, const Mixture& m) {
  const Buffer x = t.random(m.pairs(), 2 * m.width, DType::bf16);
  const Buffer dx = t.zeros(m.pairs(), 2 * m.width, DType::bf16);
  const Buffer dy = t.random(m.pairs(), m.width, DType::bf16);
  const Buffer y = t.zeros(m.pairs(), m.width, DType::bf16);
  const Buffer weight = t.random(m.pairs(), 1, DType::f32);
  const Buffer dweight = t.zeros(m.pairs(), 1, DType::f32);
  const std::string shape = fmt::format("{} x {}", m.pairs(), 2 * m.width);
  t.time("weighted_swiglu_fwd", shape, DType::bf16, {bytes_of(x, y, weight), 0},
         [&] { t.device.weighted_swiglu_forward(x, weight, y); });
  t.time("weighted_swiglu_bwd", shape, DType::bf16, {bytes_of(x, dx, dy, y, weight, dweight), 0},
         [&] { t.device.weighted_swiglu_backward(x, weight, dy, dx, dweight, y); });
}

/// Three operations in the place of cross_entropy; the middle one reads three numbers a row.
void time_shared_cross_entropy(KernelTimer& t) {
  const std::int64_t rows = t.quick ? 8 : 8192, ranks = 4, vocab = t.quick ? 200 : 151936;
  const Buffer logits = t.random(rows, vocab / ranks, DType::f32);
  const Buffer dlogits = t.zeros(rows, vocab / ranks, DType::bf16);
  const Buffer weight = t.random(rows, 1, DType::f32), loss = t.zeros(rows, 1, DType::f32);
  const Buffer statistics = t.zeros(rows, 3, DType::f32);
  const Buffer parts = t.random(ranks * rows, 3, DType::f32);
  const auto host = t.numbers(rows, vocab - 1);
  const auto targets = t.device.upload(std::span<const std::int32_t>(host));
  const std::string shape = fmt::format("{} x {} of {}", rows, vocab / ranks, vocab);
  t.time("cross_entropy_stats", shape, DType::f32,
         {bytes_of(logits, statistics) + list_bytes(rows), 0}, [&] {
           t.device.cross_entropy_statistics(logits, 0, targets.data, vocab - 1, statistics);
         });
  t.time("merge_cross_entropy", fmt::format("{} x 3 of {} ranks", rows, ranks), DType::f32,
         {bytes_of(parts, statistics, loss), 0},
         [&] { t.device.merge_cross_entropy(parts, statistics, loss); });
  t.time("cross_entropy_grad", shape, DType::bf16,
         {bytes_of(logits, dlogits, weight, statistics) + list_bytes(rows), 0}, [&] {
           t.device.cross_entropy_gradient(logits, 0, targets.data, weight, vocab - 1, statistics,
                                           dlogits);
         });
}

}  // namespace

void time_mixtures(KernelTimer& t) {
  const Mixture m = mixture_of(t);
  t.group("grouped_gemm", [&] { time_experts(t, m, "gate and up", m.hidden, 2 * m.width); });
  t.group("grouped_gemm", [&] { time_experts(t, m, "down", m.width, m.hidden); });
  t.group("choose_experts", [&] { time_router(t, m); });
  t.group("add_gathered_rows", [&] { time_return(t, m); });
  t.group("weighted_swiglu_fwd", [&] { time_weighted_swiglu(t, m); });
  t.group("cross_entropy_stats", [&] { time_shared_cross_entropy(t); });
}

}  // namespace bdlm
