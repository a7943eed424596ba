// SPDX-License-Identifier: Apache-2.0
#include "model/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bdlm {
namespace {

struct Widths {
  std::int64_t query, key;  // H d, K d
  explicit Widths(const ModelConfig& m) : query(m.query_width()), key(m.kv_width() / 2) {}
};

AttentionShape shape_of(const ModelConfig& m) {
  return {m.num_attention_heads, m.num_key_value_heads, m.head_dim,
          1 / std::sqrt(static_cast<double>(m.head_dim))};
}

HeadRotary rotary_args(const LayerContext& c, std::int64_t heads, Tensor norm,
                       const std::int32_t* positions, bool temperature) {
  RotaryTable table = c.rotary;
  if (!temperature) table.temperature = {};  // of queries only
  return {heads, c.config.head_dim, norm, c.config.rms_norm_eps, positions, table};
}
HeadRotary query_args(const LayerContext& c, const LayerTensors& w, const LayerLists& lists) {
  return rotary_args(c, c.config.num_attention_heads, w.q_norm, lists.out_positions.data, true);
}
HeadRotary key_args(const LayerContext& c, const LayerTensors& w, const LayerLists& lists,
                    std::int64_t first) {
  return rotary_args(c, c.config.num_key_value_heads, w.k_norm, lists.positions.data + first,
                     false);
}

/// Keys and values of the input rows [first, first + count).
void project_kv(const LayerContext& c, const LayerTensors& w, const LayerLists& lists,
                std::int64_t first, std::int64_t count, AttentionActivations& a) {
  const Tensor kv = a.kv.tensor().slice_rows(first, count);
  c.device.gemm(a.normed.tensor().slice_rows(first, count), Transpose::no, w.kv, Transpose::yes, kv,
                Accumulate::no);
  if (!w.kv_bias.empty()) c.device.add_bias(w.kv_bias, kv);
  const Tensor key = kv.slice_cols(0, Widths(c.config).key);
  Tensor raw = key, rstd;
  if (a.key_raw) {
    raw = a.key_raw.tensor().slice_rows(first, count);
    c.device.copy(key, raw);
  }
  if (!w.k_norm.empty()) rstd = a.key_rstd.tensor().slice_rows(first, count);
  c.device.head_rotary_forward(key_args(c, w, lists, first), raw, key, rstd);
}

KeySource source(const LayerContext& c, Tensor kv, const KeyPart& part,
                 const IntervalList& visible) {
  const std::int64_t width = Widths(c.config).key;
  const Tensor rows = kv.slice_rows(part.first, part.count);
  return {rows.slice_cols(0, width), rows.slice_cols(width, width), visible.rows.data,
          visible.notes.get()};
}

std::vector<KeySource> sources(const LayerContext& c, Tensor kv, const std::vector<KeyPart>& parts,
                               const std::vector<IntervalList>& visible) {
  std::vector<KeySource> all;
  for (std::size_t i = 0; i < parts.size(); ++i) all.push_back(source(c, kv, parts[i], visible[i]));
  return all;
}

/// Calls work(first row, rows) on pieces of the output rows and lets messages move in between: a
/// library without a progress thread moves data only when it is called. A device of its own has
/// the host free for that.
template <class Work>
void in_pieces(const LayerContext& c, const LayerPlan& plan, std::int64_t rows, Work work) {
  constexpr std::int64_t pieces = 8, smallest = 256;
  const bool whole = plan.peers.empty() || !c.device.shares_host_memory();
  const std::int64_t piece = whole ? rows : std::max(smallest, (rows + pieces - 1) / pieces);
  for (std::int64_t first = 0; first < rows; first += piece) {
    work(first, std::min(piece, rows - first));
    c.exchange.progress();
  }
}

KeySource from_row(KeySource s, std::int64_t first) {
  s.visible += first;
  return s;
}

const std::vector<IntervalList>& lists_of(const LayerPlan& plan, const LayerLists& lists,
                                                  const Peer* peer) {
  return lists.peers[static_cast<std::size_t>(peer - plan.peers.data())];
}

/// dq, dkv (sums) of the context's gradient: own keys first, while the others' are on their way.
void scores_backward(const LayerContext& c, const LayerPlan& plan, const LayerLists& lists,
                     Tensor dcontext, AttentionActivations& a, Tensor dq, Tensor dkv) {
  Device& device = c.device;
  const AttentionShape shape = shape_of(c.config);
  const Buffer delta = c.sum(dq.rows, shape.heads);
  device.attention_delta(shape, a.context, dcontext, delta);

  const auto read = [&](const KeySource& s, const KeyPart& part, Tensor gradient,
                        std::int64_t first, std::int64_t count) {
    const std::int64_t width = Widths(c.config).key;
    const Tensor rows = gradient.slice_rows(part.first, part.count);
    device.attention_backward(shape, a.query.tensor().slice_rows(first, count), from_row(s, first),
                              a.lse.tensor().slice_rows(first, count),
                              dcontext.slice_rows(first, count),
                              delta.tensor().slice_rows(first, count), dq.slice_rows(first, count),
                              rows.slice_cols(0, width), rows.slice_cols(width, width));
  };

  if (a.remote) c.exchange.resume(plan, std::move(*a.remote));
  c.exchange.begin_gradients();
  const auto own = sources(c, a.kv, plan.own, lists.own);
  in_pieces(c, plan, dq.rows, [&](std::int64_t first, std::int64_t count) {
    for (std::size_t i = 0; i < own.size(); ++i) read(own[i], plan.own[i], dkv, first, count);
  });
  while (auto shard = c.exchange.next()) {
    const auto& parts = shard->peer->parts;
    const auto visible = sources(c, shard->kv, parts, lists_of(plan, lists, shard->peer));
    for (std::size_t i = 0; i < parts.size(); ++i)
      read(visible[i], parts[i], shard->gradient, 0, dq.rows);
    c.exchange.give_back(*shard);
  }
  c.exchange.end_gradients(dkv);
  c.work.backward_pairs += plan.pairs();
}

}  // namespace

void attention_project(const LayerContext& c, const LayerTensors& w, const LayerPlan& plan,
                       const LayerLists& lists, Tensor x, bool for_backward,
                       std::optional<Purpose> send, AttentionActivations& a) {
  Device& device = c.device;
  const Widths widths(c.config);
  const auto in = static_cast<std::int64_t>(plan.in.size());
  const auto out = static_cast<std::int64_t>(plan.out.size());
  a.rstd = c.sum(x.rows, 1);
  a.normed = c.norm_rows(x, in, w.input_norm, a.rstd);

  a.kv = c.activation(in, 2 * widths.key);
  if (!w.k_norm.empty()) {
    a.query_rstd = c.sum(out, c.config.num_attention_heads);
    a.key_rstd = c.sum(in, c.config.num_key_value_heads);
    if (for_backward) {
      a.query_raw = c.activation(out, widths.query);
      a.key_raw = c.activation(in, widths.key);
    }
  }
  // What others wait for comes first.
  const std::int64_t first = send && !plan.peers.empty() ? plan.shared_rows : in;
  project_kv(c, w, lists, 0, first, a);
  if (send) c.exchange.begin(plan, a.kv, *send);
  project_kv(c, w, lists, first, in - first, a);

  Buffer gathered;
  if (!plan.out_is_in) {
    gathered = c.activation(out, x.cols);
    device.gather_rows(a.normed, lists.out.data, gathered);
  }
  const Tensor rows = plan.out_is_in ? a.normed.tensor() : gathered.tensor();
  a.query = c.activation(out, widths.query);
  const Tensor raw = a.query_raw ? a.query_raw.tensor() : a.query.tensor();
  device.gemm(rows, Transpose::no, w.q, Transpose::yes, raw, Accumulate::no);
  if (!w.q_bias.empty()) device.add_bias(w.q_bias, raw);
  device.head_rotary_forward(query_args(c, w, lists), raw, a.query, a.query_rstd);
}

void attention_attend(const LayerContext& c, const LayerPlan& plan, const LayerLists& lists,
                      AttentionActivations& a) {
  const AttentionShape shape = shape_of(c.config);
  const Tensor query = a.query;
  a.lse = c.sum(query.rows, shape.heads);
  a.context = c.activation(query.rows, query.cols);
  // A result that is continued must not be rounded in between.
  Buffer partial;
  if (!plan.peers.empty() && c.compute != c.sums()) partial = c.sum(query.rows, query.cols);
  const Tensor out = partial ? partial.tensor() : a.context.tensor();

  const auto own = sources(c, a.kv, plan.own, lists.own);
  in_pieces(c, plan, query.rows, [&](std::int64_t first, std::int64_t count) {
    std::vector<KeySource> piece;
    for (const KeySource& s : own) piece.push_back(from_row(s, first));
    c.device.attention_forward(shape, query.slice_rows(first, count), piece,
                               out.slice_rows(first, count),
                               a.lse.tensor().slice_rows(first, count), false);
  });
  while (auto shard = c.exchange.next()) {
    if (shard->peer->parts.empty()) continue;
    const auto all = sources(c, shard->kv, shard->peer->parts, lists_of(plan, lists, shard->peer));
    c.device.attention_forward(shape, query, all, out, a.lse, true);
  }
  if (partial) c.device.copy(partial, a.context);
  c.work.forward_pairs += plan.pairs();
}

void attention_backward(const LayerContext& c, const LayerTensors& w, const LayerTensors& g,
                        const LayerPlan& plan, const LayerLists& lists, Tensor x, Tensor dcontext,
                        AttentionActivations& a, Tensor dx) {
  Device& device = c.device;
  const Widths widths(c.config);
  const auto in = static_cast<std::int64_t>(plan.in.size());
  const std::int64_t out = dcontext.rows;
  const Buffer dq_sum = c.sum(out, widths.query), dkv_sum = c.sum(in, 2 * widths.key);
  device.zero(dq_sum);
  device.zero(dkv_sum);
  scores_backward(c, plan, lists, dcontext, a, dq_sum, dkv_sum);

  // Back through rotary and QK-norm, into the compute dtype of the products.
  const bool cast = c.compute != c.sums();
  const Buffer dq_cast = cast ? c.activation(out, widths.query) : Buffer();
  const Buffer dkv_cast = cast ? c.activation(in, 2 * widths.key) : Buffer();
  const Tensor dq = cast ? dq_cast.tensor() : dq_sum.tensor();
  const Tensor dkv = cast ? dkv_cast.tensor() : dkv_sum.tensor();
  device.head_rotary_backward(query_args(c, w, lists), a.query_raw, a.query_rstd, dq_sum, dq,
                              g.q_norm);
  device.head_rotary_backward(key_args(c, w, lists, 0), a.key_raw, a.key_rstd,
                              dkv_sum.tensor().slice_cols(0, widths.key),
                              dkv.slice_cols(0, widths.key), g.k_norm);
  if (cast)
    device.copy(dkv_sum.tensor().slice_cols(widths.key, widths.key),
                dkv.slice_cols(widths.key, widths.key));
  if (!g.q_bias.empty()) {
    device.bias_gradient(dq, g.q_bias);
    device.bias_gradient(dkv, g.kv_bias);
  }

  const Buffer dnormed = c.activation(in, x.cols);
  device.gemm(dkv, Transpose::yes, a.normed, Transpose::no, g.kv, Accumulate::yes);
  device.gemm(dkv, Transpose::no, w.kv, Transpose::no, dnormed, Accumulate::no);
  if (plan.out_is_in) {
    device.gemm(dq, Transpose::yes, a.normed, Transpose::no, g.q, Accumulate::yes);
    device.gemm(dq, Transpose::no, w.q, Transpose::no, dnormed, Accumulate::yes);
  } else {
    const Buffer rows = c.activation(out, x.cols);
    device.gather_rows(a.normed, lists.out.data, rows);
    device.gemm(dq, Transpose::yes, rows, Transpose::no, g.q, Accumulate::yes);
    device.gemm(dq, Transpose::no, w.q, Transpose::no, rows, Accumulate::no);
    device.scatter_add_rows(rows, lists.out.data, dnormed);
  }
  c.norm_rows_backward(x, w.input_norm, a.rstd, dnormed, dx, g.input_norm);
  a = {};
}

}  // namespace bdlm
