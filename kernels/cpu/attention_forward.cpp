// SPDX-License-Identifier: Apache-2.0
// Attention with online softmax (Milakov and Gimelshein, arXiv 1805.02867) over key tiles, as in
// FlashAttention (arXiv 2205.14135): memory is linear in rows. Logarithms are to base 2 inside.
#include <atomic>
#include <cmath>
#include <numeric>

#include "kernels/cpu/attention_amx.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {
namespace attention {
namespace {

struct Forward {
  AttentionShape shape;
  Tensor q;
  std::span<const KeySource> sources;
  Tensor out, lse;
  bool resume = false;

  std::int64_t group() const { return shape.heads / shape.kv_heads; }
};

/// What one thread works on.
template <class P>
struct ForwardScratch {
  using Sum = typename P::Sum;
  using Operand = typename P::Operand;
  using Integer = IntegerOf<Sum>;

  ForwardScratch(Arena& arena, Channels d, std::int64_t subs, std::int64_t panels) {
    const std::int64_t panel = P::lanes * d.padded;
    const std::int64_t tile = (P::key_tile + P::row_step) * d.padded;
    rows = arena.take<Operand>(panel);
    queries = arena.take<Operand>(panels * panel);
    result = arena.take<Sum>(panels * panel);
    result_rows = arena.take<Sum>(panel);
    top = arena.take<Sum>(panels * P::lanes);
    total = arena.take<Sum>(panels * P::lanes);
    seen = arena.take<PanelKeys>(subs);
    lo = arena.take<Integer>(subs * P::lanes);
    hi = arena.take<Integer>(subs * P::lanes);
    key = arena.take<Operand>(tile);
    value = arena.take<Operand>(tile);
    value_columns = arena.take<Operand>(P::copies ? tile : 0);
    scores = arena.take<Sum>(P::key_tile * P::lanes);
    pairs = arena.take<Operand>(P::copies ? P::key_tile * P::lanes : 0);
  }

  Operand* rows;         // [lanes][channels], on the way to another format
  Operand* queries;      // a panel: right operand of scores
  Sum* result;           // a panel: [channels][lanes], not yet divided by total
  Sum* result_rows;      // [lanes][channels]
  Sum *top, *total;      // a panel: [lanes], the largest score so far, the sum of 2^(score - top)
  PanelKeys* seen;       // a sub-tile, of the current source
  Integer *lo, *hi;      // a sub-tile: [lanes]
  Operand *key, *value;  // a tile: [keys][channels]
  Operand* value_columns;
  Sum* scores;  // [keys][lanes]
  Operand* pairs;
};

/// Replaces a panel's scores of keys [key, key + count) by probabilities relative to the new top.
template <class P, bool masked, class Sum = typename P::Sum>
void softmax(Sum* scores, std::int64_t count, Sum factor, std::int64_t key,
             const IntegerOf<Sum>* lo, const IntegerOf<Sum>* hi, Sum* top, Sum* total, Sum* result,
             std::int64_t channels) {
  using V = Vector<Sum>;
  constexpr Sum infinity = std::numeric_limits<Sum>::infinity();
  for (int v = 0; v < P::lanes; v += width<Sum>) {
    V largest = V{} - infinity, other = largest;  // two chains hide the latency
    const auto first = vector_at(lo + v), last = vector_at(hi + v);
    for (std::int64_t k = 0; k < count; ++k) {
      V& s = vector_at(scores + k * P::lanes + v);
      if constexpr (masked) {
        const auto position = static_cast<IntegerOf<Sum>>(key + k);
        s = (position >= first) & (position < last) ? s : V{} - infinity;
      }
      (k % 2 ? other : largest) = maximum(s, k % 2 ? other : largest);
    }
    const V old = vector_at(top + v);
    const V now = maximum(maximum(largest, other) * factor, old);
    const V base = now == -infinity ? V{} : now;  // no key yet: all probabilities are 0
    const V shrink = exp2<P::precision>(old - base);
    if (any((now != old) & (old != -infinity))) {
      for (std::int64_t c = 0; c < channels; ++c) vector_at(result + c * P::lanes + v) *= shrink;
    }
    V sum{};
    for (std::int64_t k = 0; k < count; ++k) {
      V& s = vector_at(scores + k * P::lanes + v);
      s = exp2<P::precision>(s * factor - base);
      sum += s;
    }
    vector_at(top + v) = now;
    vector_at(total + v) = vector_at(total + v) * shrink + sum;
  }
}

/// One query tile of one key head.
template <class P, class T>
class ForwardTile {
  using Sum = typename P::Sum;
  using Scratch = ForwardScratch<P>;

 public:
  ForwardTile(const Forward& args, Channels d, const QueryTile& tile, std::int64_t kv_head,
              const Scratch& scratch)
      : args_(args), d_(d), tile_(tile, args.group(), kv_head, P::lanes, d.used), s_(scratch) {}

  void run() {
    for (std::int64_t p = 0; p < tile_.panels(); ++p) start(p);
    for (const KeySource& source : args_.sources) attend(source);
    for (std::int64_t p = 0; p < tile_.panels(); ++p) finish(p);
  }

 private:
  std::int64_t panel_size() const { return P::lanes * d_.padded; }

  void start(std::int64_t p) {
    const std::int64_t sub = p / tile_.group;
    const std::int64_t first = tile_.first_row(sub), count = tile_.row_count(sub);
    read_rows<T>(args_.q, first, count, tile_.column(p), d_, s_.rows, P::lanes);
    P::query_columns(s_.rows, d_, s_.queries + p * panel_size());
    Sum* result = s_.result + p * panel_size();
    Sum *top = s_.top + p * P::lanes, *total = s_.total + p * P::lanes;
    std::fill(top, top + P::lanes, -std::numeric_limits<Sum>::infinity());
    std::fill(total, total + P::lanes, Sum{0});
    if (!args_.resume) {
      std::fill(result, result + panel_size(), Sum{0});
      return;
    }
    // A normalised result is one whose total is 1 and whose top is its log-sum-exp.
    dispatch(args_.out.dtype, [&]<class Out>() {
      read_rows<Out>(args_.out, first, count, tile_.column(p), d_, s_.result_rows, P::lanes);
    });
    transpose(s_.result_rows, d_.padded, P::lanes, d_.padded, result, P::lanes);
    const Rows<Sum> lse(args_.lse);
    for (std::int64_t i = 0; i < count; ++i) {
      top[i] = lse[first + i][tile_.head(p)] * static_cast<Sum>(log2_e);
      total[i] = top[i] == -std::numeric_limits<Sum>::infinity() ? Sum{0} : Sum{1};
    }
  }

  void attend(const KeySource& source) {
    for (std::int64_t sub = 0; sub < tile_.subs; ++sub) {
      s_.seen[sub] = panel_keys(source.visible + tile_.first_row(sub), tile_.row_count(sub),
                                P::lanes, s_.lo + sub * P::lanes, s_.hi + sub * P::lanes);
    }
    const std::span<const PanelKeys> seen(s_.seen, static_cast<std::size_t>(tile_.subs));
    for (KeyTile keys = next_keys<P>(seen, 0); keys.count > 0;
         keys = next_keys<P>(seen, keys.first + keys.count)) {
      const std::int64_t col = tile_.kv_head * d_.used;
      read_rows<T>(source.key, keys.first, keys.count, col, d_, s_.key, keys.padded);
      read_rows<T>(source.value, keys.first, keys.count, col, d_, s_.value, keys.padded);
      const auto* columns = P::key_columns(s_.value, keys.padded, d_, s_.value_columns);
      for (std::int64_t sub = 0; sub < tile_.subs; ++sub) {
        const KeyRange range = seen[static_cast<std::size_t>(sub)].in(keys);
        if (range.count <= 0) continue;
        for (std::int64_t g = 0; g < tile_.group; ++g)
          step(sub, sub * tile_.group + g, keys, range, columns);
      }
    }
  }

  void step(std::int64_t sub, std::int64_t p, const KeyTile& keys, const KeyRange& range,
            const typename P::Operand* columns) {
    Sum* result = s_.result + p * panel_size();
    const std::int64_t offset = range.first - keys.first;
    P::scores(s_.key + offset * d_.padded, s_.queries + p * panel_size(), d_, range.count,
              s_.scores);
    const auto update = range.full ? &softmax<P, false> : &softmax<P, true>;
    update(s_.scores, range.count, static_cast<Sum>(args_.shape.scale * log2_e), range.first,
           s_.lo + sub * P::lanes, s_.hi + sub * P::lanes, s_.top + p * P::lanes,
           s_.total + p * P::lanes, result, d_.used);
    const auto* pairs = P::score_pairs(s_.scores, range.count, s_.pairs);
    P::outputs(columns, offset, d_, pairs, range.count, result);
  }

  void finish(std::int64_t p) {
    const std::int64_t sub = p / tile_.group;
    const std::int64_t first = tile_.first_row(sub), count = tile_.row_count(sub);
    Sum* result = s_.result + p * panel_size();
    Sum *top = s_.top + p * P::lanes, *total = s_.total + p * P::lanes;
    Sum inverse[P::lanes];
    for (int i = 0; i < P::lanes; ++i) inverse[i] = total[i] == 0 ? Sum{0} : 1 / total[i];
    for (std::int64_t c = 0; c < d_.used; ++c) {
#pragma omp simd
      for (int i = 0; i < P::lanes; ++i) result[c * P::lanes + i] *= inverse[i];
    }
    transpose(result, P::lanes, d_.padded, P::lanes, s_.result_rows, d_.padded);
    dispatch(args_.out.dtype, [&]<class Out>() {
      const Rows<Out> out(args_.out);
      for (std::int64_t i = 0; i < count; ++i) {
        const Sum* from = s_.result_rows + i * d_.padded;
        Out* to = out[first + i] + tile_.column(p);
#pragma omp simd
        for (std::int64_t c = 0; c < d_.used; ++c) store(to[c], from[c]);
      }
    });
    const Rows<Sum> lse(args_.lse);
    for (std::int64_t i = 0; i < count; ++i) {  // log 0 = -infinity is what a row without keys gets
      lse[first + i][tile_.head(p)] = static_cast<Sum>(ln_2) * top[i] + std::log(total[i]);
    }
  }

  const Forward& args_;
  Channels d_;
  Panels tile_;
  const Scratch& s_;
};

/// Items are (query tile, key head), the costly ones first, taken by whichever thread is free.
template <class P, class T>
void forward(CpuDevice& device, const Forward& args) {
  const Channels d{args.shape.head_dim, round_up(args.shape.head_dim, P::channel_step)};
  const std::int64_t subs = sub_tiles<P>(args.group());
  std::vector<QueryTile> tiles = query_tiles(args.q.rows, subs * P::lanes, args.sources);
  std::ranges::stable_sort(tiles, std::greater{}, &QueryTile::cost);
  const std::int64_t items = static_cast<std::int64_t>(tiles.size()) * args.shape.kv_heads;
  const std::int64_t work = total_cost(tiles) * args.shape.heads * d.used;

  Arena measure(nullptr);
  ForwardScratch<P>(measure, d, subs, subs * args.group());
  const int team = useful_threads(device.threads(), items, work);
  const Buffer memory = device.allocate(team, measure.used() / 4, DType::f32, Memory::workspace);
  std::atomic<std::int64_t> next = 0;
  parallel_ranges(team, team, work, [&](int part, std::int64_t, std::int64_t) {
    Arena arena(memory.tensor().slice_rows(part, 1).data);
    const ForwardScratch<P> scratch(arena, d, subs, subs * args.group());
    [[maybe_unused]] const typename P::Session session;
    for (std::int64_t i = next++; i < items; i = next++) {
      const QueryTile& tile = tiles[static_cast<std::size_t>(i / args.shape.kv_heads)];
      ForwardTile<P, T>(args, d, tile, i % args.shape.kv_heads, scratch).run();
    }
  });
}

}  // namespace
}  // namespace attention

void CpuDevice::attention_forward(const AttentionShape& shape, Tensor q,
                                  std::span<const KeySource> sources, Tensor out, Tensor lse,
                                  bool resume) {
  using namespace attention;
  check_attention(shape, q, sources, out, lse);
  if (q.rows == 0) return;
  const Forward args{shape, q, sources, out, lse, resume};
  switch (q.dtype) {
    case DType::f64:
      return forward<VectorProducts<double>, double>(*this, args);
    case DType::f32:
      return forward<VectorProducts<float>, float>(*this, args);
    case DType::bf16:
#ifdef BDLM_AMX
      if (use_amx(shape)) return forward<AmxProducts, bfloat16>(*this, args);
#endif
      return forward<VectorProducts<float>, bfloat16>(*this, args);
  }
}

}  // namespace bdlm
