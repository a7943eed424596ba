// SPDX-License-Identifier: Apache-2.0
// The gradient of attention from output and log-sum-exp alone: probabilities are computed again.
// Query tiles outside, key tiles inside: dq stays in cache, dkey and dvalue are added to a tile at
// a time.
#include <atomic>

#include "kernels/cpu/attention_amx.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {
namespace attention {
namespace {

struct Backward {
  AttentionShape shape;
  Tensor q;
  KeySource source;
  Tensor lse, dout, delta, dq;

  std::int64_t group() const { return shape.heads / shape.kv_heads; }
};

/// What one thread works on.
template <class P>
struct BackwardScratch {
  using Sum = typename P::Sum;
  using Operand = typename P::Operand;
  using Integer = IntegerOf<Sum>;

  static constexpr std::int64_t score_tile = P::key_tile * P::lanes;

  BackwardScratch(Arena& arena, Channels d, std::int64_t subs, std::int64_t panels) {
    const std::int64_t panel = P::lanes * d.padded;
    const std::int64_t tile = (P::key_tile + P::row_step) * d.padded;
    rows = arena.take<Operand>(P::copies ? panel : 0);
    for (Operand** operand : {&q_columns, &q_rows, &dout_columns, &dout_rows}) {
      *operand = arena.take<Operand>(panels * panel);
    }
    dq = arena.take<Sum>(panels * panel);
    dq_rows = arena.take<Sum>(panel);
    lse = arena.take<Sum>(panels * P::lanes);
    delta = arena.take<Sum>(panels * P::lanes);
    seen = arena.take<PanelKeys>(subs);
    lo = arena.take<Integer>(subs * P::lanes);
    hi = arena.take<Integer>(subs * P::lanes);
    for (Operand** operand : {&key, &value}) *operand = arena.take<Operand>(tile);
    key_columns = arena.take<Operand>(P::copies ? tile : 0);
    for (Sum** sum : {&dkey, &dvalue}) *sum = arena.take<Sum>(tile);
    for (Sum** sum : {&p, &ds}) *sum = arena.take<Sum>((P::copies ? 1 : panels) * score_tile);
    for (Operand** operand : {&p_rows, &ds_rows}) {
      *operand = arena.take<Operand>(P::copies ? panels * score_tile : 0);
    }
    ds_pairs = arena.take<Operand>(P::copies ? score_tile : 0);
  }

  Operand* rows;                                           // on the way to another format
  Operand *q_columns, *q_rows, *dout_columns, *dout_rows;  // a panel
  Sum* dq;                                                 // a panel: [channels][lanes]
  Sum* dq_rows;                                            // [lanes][channels]
  Sum *lse, *delta;                                        // a panel: [lanes], lse to base 2
  PanelKeys* seen;                                         // a sub-tile
  Integer *lo, *hi;                                        // a sub-tile: [lanes]
  Operand *key, *value, *key_columns;                      // the key tile
  Sum *dkey, *dvalue;                                      // its gradients: [keys][channels]
  Sum *p, *ds;                                             // scores become p, dp becomes ds
  Operand *p_rows, *ds_rows, *ds_pairs;
};

/// p: scores become probabilities; ds: dp becomes the gradient of the scores, without the scale.
template <class P, bool masked, class Sum = typename P::Sum>
void softmax_gradient(Sum* p, Sum* ds, std::int64_t count, Sum factor, std::int64_t key,
                      const IntegerOf<Sum>* lo, const IntegerOf<Sum>* hi, const Sum* lse,
                      const Sum* delta) {
  using V = Vector<Sum>;
  for (int v = 0; v < P::lanes; v += width<Sum>) {
    const V base = vector_at(lse + v), mean = vector_at(delta + v);
    const auto first = vector_at(lo + v), last = vector_at(hi + v);
    for (std::int64_t k = 0; k < count; ++k) {
      V& s = vector_at(p + k * P::lanes + v);
      V& d = vector_at(ds + k * P::lanes + v);
      s = exp2<P::precision>(s * factor - base);
      d = s * (d - mean);
      if constexpr (masked) {
        const auto position = static_cast<IntegerOf<Sum>>(key + k);
        const auto inside = (position >= first) & (position < last);
        s = inside ? s : V{};
        d = inside ? d : V{};
      }
    }
  }
}

/// One query tile of one key head; adds to the head's columns of dq, dkey and dvalue.
template <class P, class T>
class BackwardTile {
  using Sum = typename P::Sum;
  using Operand = typename P::Operand;
  using Scratch = BackwardScratch<P>;

 public:
  BackwardTile(const Backward& args, Channels d, const QueryTile& tile, std::int64_t kv_head,
               const Tensor& dkey, const Tensor& dvalue, const Scratch& scratch)
      : args_(args),
        d_(d),
        tile_(tile, args.group(), kv_head, P::lanes, d.used),
        dkey_(dkey),
        dvalue_(dvalue),
        s_(scratch) {}

  void run() {
    const KeySource& source = args_.source;
    for (std::int64_t sub = 0; sub < tile_.subs; ++sub) {
      s_.seen[sub] = panel_keys(source.visible + tile_.first_row(sub), tile_.row_count(sub),
                                P::lanes, s_.lo + sub * P::lanes, s_.hi + sub * P::lanes);
    }
    const std::span<const PanelKeys> seen(s_.seen, static_cast<std::size_t>(tile_.subs));
    KeyTile keys = next_keys<P>(seen, 0);
    if (keys.count == 0) return;
    for (std::int64_t p = 0; p < tile_.panels(); ++p) start(p);
    for (; keys.count > 0; keys = next_keys<P>(seen, keys.first + keys.count)) attend(keys, seen);
    for (std::int64_t p = 0; p < tile_.panels(); ++p) finish(p);
  }

 private:
  std::int64_t panel_size() const { return P::lanes * d_.padded; }

  /// Both formats of a panel of q or dout.
  void pack(const Tensor& x, std::int64_t p, Operand* columns, Operand* rows) {
    const std::int64_t sub = p / tile_.group;
    Operand* plain = P::copies ? s_.rows : rows + p * panel_size();
    read_rows<T>(x, tile_.first_row(sub), tile_.row_count(sub), tile_.column(p), d_, plain,
                 P::lanes);
    P::query_columns(plain, d_, columns + p * panel_size());
    P::query_rows(plain, d_, rows + p * panel_size());
  }

  void start(std::int64_t p) {
    pack(args_.q, p, s_.q_columns, s_.q_rows);
    pack(args_.dout, p, s_.dout_columns, s_.dout_rows);
    std::fill(s_.dq + p * panel_size(), s_.dq + (p + 1) * panel_size(), Sum{0});
    // +infinity makes every probability 0: lanes without a row, rows that have seen no key.
    constexpr Sum infinity = std::numeric_limits<Sum>::infinity();
    Sum *lse = s_.lse + p * P::lanes, *delta = s_.delta + p * P::lanes;
    std::fill(lse, lse + P::lanes, infinity);
    std::fill(delta, delta + P::lanes, Sum{0});
    const Rows<Sum> from(args_.lse), mean(args_.delta);
    const std::int64_t sub = p / tile_.group, first = tile_.first_row(sub);
    for (std::int64_t i = 0; i < tile_.row_count(sub); ++i) {
      const Sum value = from[first + i][tile_.head(p)];
      if (value == -infinity) continue;
      lse[i] = value * static_cast<Sum>(log2_e);
      delta[i] = mean[first + i][tile_.head(p)];
    }
  }

  void attend(const KeyTile& keys, std::span<const PanelKeys> seen) {
    const std::int64_t col = tile_.kv_head * d_.used;
    read_rows<T>(args_.source.key, keys.first, keys.count, col, d_, s_.key, keys.padded);
    read_rows<T>(args_.source.value, keys.first, keys.count, col, d_, s_.value, keys.padded);
    const Operand* columns = P::key_columns(s_.key, keys.padded, d_, s_.key_columns);
    const std::int64_t size = keys.padded * d_.padded;
    std::fill(s_.dkey, s_.dkey + size, Sum{0});
    std::fill(s_.dvalue, s_.dvalue + size, Sum{0});
    // Sub-tiles with the same keys share one product: its sums are loaded and stored once.
    for (std::int64_t sub = 0, end = 0; sub < tile_.subs; sub = end) {
      const KeyRange range = seen[static_cast<std::size_t>(sub)].in(keys);
      for (end = sub + 1; end < tile_.subs; ++end) {
        const KeyRange next = seen[static_cast<std::size_t>(end)].in(keys);
        if (next.first != range.first || next.count != range.count) break;
      }
      if (range.count > 0) step(sub, end, keys, seen, columns);
    }
    add(s_.dkey, keys, col, static_cast<Sum>(args_.shape.scale), dkey_);
    add(s_.dvalue, keys, col, Sum{1}, dvalue_);
  }

  void step(std::int64_t sub, std::int64_t end, const KeyTile& keys,
            std::span<const PanelKeys> seen, const Operand* columns) {
    constexpr std::int64_t stride = Scratch::score_tile;
    const std::int64_t first = sub * tile_.group, last = end * tile_.group;
    const KeyRange run = seen[static_cast<std::size_t>(sub)].in(keys);
    const std::int64_t offset = run.first - keys.first;
    const Operand *p_rows = nullptr, *ds_rows = nullptr;
    for (std::int64_t p = first; p < last; ++p) {
      const std::int64_t own = p / tile_.group, slot = p - first;
      Sum* scores = s_.p + (P::copies ? 0 : slot * stride);
      Sum* ds = s_.ds + (P::copies ? 0 : slot * stride);
      P::scores(s_.key + offset * d_.padded, s_.q_columns + p * panel_size(), d_, run.count,
                scores);
      P::scores(s_.value + offset * d_.padded, s_.dout_columns + p * panel_size(), d_, run.count,
                ds);
      const bool full = seen[static_cast<std::size_t>(own)].in(keys).full;
      const auto update = full ? &softmax_gradient<P, false> : &softmax_gradient<P, true>;
      update(scores, ds, run.count, static_cast<Sum>(args_.shape.scale * log2_e), run.first,
             s_.lo + own * P::lanes, s_.hi + own * P::lanes, s_.lse + p * P::lanes,
             s_.delta + p * P::lanes);
      const Operand* p_row = P::score_rows(scores, run.count, s_.p_rows + slot * stride);
      const Operand* ds_row = P::score_rows(ds, run.count, s_.ds_rows + slot * stride);
      if (p == first) p_rows = p_row, ds_rows = ds_row;
      const Operand* pairs = P::score_pairs(ds, run.count, s_.ds_pairs);
      P::outputs(columns, offset, d_, pairs, run.count, s_.dq + p * panel_size());
    }
    P::sums(p_rows, stride, s_.dout_rows + first * panel_size(), last - first, d_, run.count,
            s_.dvalue + offset * d_.padded);
    P::sums(ds_rows, stride, s_.q_rows + first * panel_size(), last - first, d_, run.count,
            s_.dkey + offset * d_.padded);
  }

  void add(const Sum* from, const KeyTile& keys, std::int64_t col, Sum factor, const Tensor& x) {
    const Rows<Sum> rows(x);
    for (std::int64_t k = 0; k < keys.count; ++k) {
      Sum* to = rows[keys.first + k] + col;
#pragma omp simd
      for (std::int64_t c = 0; c < d_.used; ++c) to[c] += factor * from[k * d_.padded + c];
    }
  }

  void finish(std::int64_t p) {
    const std::int64_t sub = p / tile_.group;
    transpose(s_.dq + p * panel_size(), P::lanes, d_.padded, P::lanes, s_.dq_rows, d_.padded);
    add(s_.dq_rows, {tile_.first_row(sub), tile_.row_count(sub), 0}, tile_.column(p),
        static_cast<Sum>(args_.shape.scale), args_.dq);
  }

  const Backward& args_;
  Channels d_;
  Panels tile_;
  const Tensor &dkey_, &dvalue_;
  const Scratch& s_;
};

/// Units are (chunk of queries, key head). One unit at a time adds to a head's columns of a chunk's
/// sums, in the order of its tiles: the result does not depend on which thread takes it.
template <class P, class T>
void backward(CpuDevice& device, const Backward& args, const Tensor& dkey, const Tensor& dvalue) {
  const AttentionShape& shape = args.shape;
  const Channels d{shape.head_dim, round_up(shape.head_dim, P::channel_step)};
  const std::int64_t subs = sub_tiles<P>(args.group());
  const auto tiles = query_tiles(args.q.rows, subs * P::lanes, {&args.source, 1});
  const std::int64_t work = total_cost(tiles) * shape.heads * d.used;
  const int most = useful_threads(device.threads(), device.threads(), work);
  const std::int64_t chunks =
      chunks_for(shape.kv_heads, most, static_cast<std::int64_t>(tiles.size()));
  const auto hands = deal(tiles, chunks);

  // The first chunk adds to the result itself.
  const Buffer sums =
      device.allocate((chunks - 1) * dkey.rows, 2 * dkey.cols, dkey.dtype, Memory::workspace);
  device.zero(sums);
  const auto sums_of = [&](std::int64_t chunk, const Tensor& result, std::int64_t first_col) {
    if (chunk == 0) return result;
    return sums.tensor()
        .slice_rows((chunk - 1) * result.rows, result.rows)
        .slice_cols(first_col, result.cols);
  };

  Arena measure(nullptr);
  BackwardScratch<P>(measure, d, subs, subs * args.group());
  const std::int64_t units = chunks * shape.kv_heads;
  const int team = static_cast<int>(std::min<std::int64_t>(most, units));
  const Buffer memory = device.allocate(team, measure.used() / 4, DType::f32, Memory::workspace);
  std::atomic<std::int64_t> next = 0;
  parallel_ranges(team, team, work, [&](int part, std::int64_t, std::int64_t) {
    Arena arena(memory.tensor().slice_rows(part, 1).data);
    const BackwardScratch<P> scratch(arena, d, subs, subs * args.group());
    [[maybe_unused]] const typename P::Session session;
    for (std::int64_t unit = next++; unit < units; unit = next++) {
      const std::int64_t chunk = unit / shape.kv_heads;
      const Tensor own_dkey = sums_of(chunk, dkey, 0),
                   own_dvalue = sums_of(chunk, dvalue, dkey.cols);
      for (const QueryTile& tile : hands[static_cast<std::size_t>(chunk)]) {
        BackwardTile<P, T>(args, d, tile, unit % shape.kv_heads, own_dkey, own_dvalue, scratch)
            .run();
      }
    }
  });
  for (std::int64_t chunk = 1; chunk < chunks; ++chunk) {
    device.add(sums_of(chunk, dkey, 0), dkey);
    device.add(sums_of(chunk, dvalue, dkey.cols), dvalue);
  }
}

}  // namespace
}  // namespace attention

void CpuDevice::attention_backward(const AttentionShape& shape, Tensor q, const KeySource& source,
                                   Tensor lse, Tensor dout, Tensor delta, Tensor dq, Tensor dkey,
                                   Tensor dvalue) {
  using namespace attention;
  check_attention_gradient(shape, q, source, lse, dout, delta, dq, dkey, dvalue);
  if (q.rows == 0 || source.key.rows == 0) return;
  const Backward args{shape, q, source, lse, dout, delta, dq};
  switch (q.dtype) {
    case DType::f64:
      return backward<VectorProducts<double>, double>(*this, args, dkey, dvalue);
    case DType::f32:
      return backward<VectorProducts<float>, float>(*this, args, dkey, dvalue);
    case DType::bf16:
#ifdef BDLM_AMX
      if (use_amx(shape)) return backward<AmxProducts, bfloat16>(*this, args, dkey, dvalue);
#endif
      return backward<VectorProducts<float>, bfloat16>(*this, args, dkey, dvalue);
  }
}

}  // namespace bdlm
