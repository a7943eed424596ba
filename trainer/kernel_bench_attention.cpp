// SPDX-License-Identifier: Apache-2.0
// Interval attention on the patterns that training has. Useful FLOPs count visible pairs only:
// forward 4, backward 10 a pair and channel of a query head.
#include <algorithm>
#include <cmath>

#include "trainer/kernel_timer.h"

namespace bdlm {
namespace {

/// Query rows over one key source or two; every source has keys of its own.
struct Pattern {
  std::string name;
  std::int64_t rows = 0, keys = 0;  // keys: of each source
  std::vector<std::vector<Interval>> sources;
  double pairs() const {
    double sum = 0;
    for (const auto& rows_of_source : sources)
      for (const Interval i : rows_of_source) sum += std::max(0, i.hi - i.lo);
    return sum;
  }
};

std::int32_t narrow(std::int64_t i) { return static_cast<std::int32_t>(i); }

Pattern causal(std::int64_t tokens, std::int64_t window = 0) {
  Pattern p{fmt::format("{} causal", tokens), tokens, tokens, {}};
  p.sources.resize(1);
  if (window > 0) p.name += fmt::format(", window {}", window);
  for (std::int64_t i = 0; i < tokens; ++i)
    p.sources[0].push_back(
        {window > 0 ? narrow(std::max<std::int64_t>(0, i - window + 1)) : 0, narrow(i + 1)});
  return p;
}

/// Clean rows, then their corrupted copy; clean keys, then corrupted ones.
Pattern block_diffusion(std::int64_t tokens, std::int64_t document, std::int64_t block) {
  Pattern p{fmt::format("{} clean + {} corrupted, documents of {}, block {}", tokens, tokens,
                        document, block),
            2 * tokens,
            tokens,
            {}};
  p.sources.resize(2);
  for (const bool corrupted : {false, true})
    for (std::int64_t i = 0; i < tokens; ++i) {
      const std::int64_t start = i / document * document;
      const std::int64_t first = start + (i - start) / block * block;
      const std::int64_t last = std::min({first + block, start + document, tokens});
      p.sources[0].push_back({narrow(start), narrow(corrupted ? first : last)});
      p.sources[1].push_back(corrupted ? Interval{narrow(first), narrow(last)} : Interval{});
    }
  return p;
}

void time_pattern(KernelTimer& t, const Pattern& p, std::int64_t heads, std::int64_t kv_heads,
                  std::int64_t dim, DType type, bool resume = false) {
  const AttentionShape shape{heads, kv_heads, dim, 1 / std::sqrt(static_cast<double>(dim))};
  const DType sums = accumulate_type(type);
  const std::int64_t width = heads * dim, key_width = kv_heads * dim;
  const Buffer q = t.random(p.rows, width, type), dout = t.random(p.rows, width, type);
  const Buffer out = t.zeros(p.rows, width, resume ? sums : type);
  const Buffer lse = t.zeros(p.rows, heads, sums), delta = t.zeros(p.rows, heads, sums);
  std::vector<Buffer> kv, dkv;
  std::vector<IntervalList> lists;
  std::vector<KeySource> sources;
  double key_bytes = 0, gradient_bytes = 0;
  for (const auto& visible : p.sources) {
    kv.push_back(t.random(p.keys, 2 * key_width, type));
    dkv.push_back(t.zeros(p.keys, 2 * key_width, sums));
    lists.push_back(t.device.upload_intervals(visible, p.keys));
    const Tensor both = kv.back();
    sources.push_back({both.slice_cols(0, key_width), both.slice_cols(key_width, key_width),
                       lists.back().rows.data, lists.back().notes.get()});
    key_bytes += bytes_of(both);
    gradient_bytes += bytes_of(dkv.back());
  }
  const double work = p.pairs() * static_cast<double>(width);
  const std::string name = fmt::format("{}, {}/{} heads of {}", p.name, heads, kv_heads, dim);
  t.time("attention_forward", name, type, {bytes_of(q, out, lse) + key_bytes, 4 * work},
         [&] { t.device.attention_forward(shape, q, sources, out, lse, false); });
  if (resume) {
    // What a second shard costs: the first one's result is read and written again.
    t.time("attention_forward", name + ", resumed", type,
           {bytes_of(q, out, out) + 2 * bytes_of(lse) + key_bytes, 4 * work},
           [&] { t.device.attention_forward(shape, q, sources, out, lse, true); });
    return;
  }
  t.time("attention_delta", name, type, {bytes_of(out, dout, delta), 0},
         [&] { t.device.attention_delta(shape, out, dout, delta); });
  const Buffer dq = t.zeros(p.rows, width, sums);
  const double read = bytes_of(q, dout, lse, delta) * static_cast<double>(sources.size());
  t.time("attention_backward", name, type,
         {read + key_bytes + 2 * gradient_bytes + 2 * bytes_of(dq), 10 * work}, [&] {
           for (std::size_t s = 0; s < sources.size(); ++s) {
             const Tensor gradient = dkv[s];
             t.device.attention_backward(shape, q, sources[s], lse, dout, delta, dq,
                                         gradient.slice_cols(0, key_width),
                                         gradient.slice_cols(key_width, key_width));
           }
         });
}

}  // namespace

void time_attention(KernelTimer& t) {
  const auto run = [&](const Pattern& p, std::int64_t heads, std::int64_t kv_heads,
                       std::int64_t dim, DType type = DType::bf16, bool resume = false) {
    t.group("attention_forward", [&] { time_pattern(t, p, heads, kv_heads, dim, type, resume); });
  };
  if (t.quick) {
    run(causal(40), 2, 1, 64);
    run(block_diffusion(32, 24, 8), 2, 1, 64);
    run(causal(40, 8), 2, 1, 16, DType::f32);
    run(causal(40), 2, 1, 64, DType::bf16, true);
    return;
  }
  run(causal(16384), 32, 8, 64);
  run(causal(16384), 24, 8, 128);
  run(causal(16384), 16, 8, 256);
  run(causal(32768), 24, 8, 128);
  run(block_diffusion(16384, 16384, 32), 32, 8, 64);
  run(block_diffusion(16384, 16384, 32), 24, 8, 128);
  run(block_diffusion(16384, 16384, 32), 16, 8, 256);
  run(block_diffusion(16384, 2048, 32), 24, 8, 128);
  run(block_diffusion(16384, 300, 32), 24, 8, 128);
  run(causal(32768, 4096), 24, 8, 128);
  run(causal(32768, 512), 24, 8, 128);
  run(causal(16384), 24, 8, 128, DType::bf16, true);
  run(causal(2048), 24, 8, 128, DType::f32);
}

}  // namespace bdlm
