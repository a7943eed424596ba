// SPDX-License-Identifier: Apache-2.0
#include "kernels/checks.h"

#include "kernels/dispatch.h"

namespace bdlm {

void check_gather_rows(const Tensor& x, const Tensor& y) {
  require_matrix("gather_rows: y", y, y.rows, x.cols, x.dtype);
}

void check_scatter_add_rows(const Tensor& x, const Tensor& y) {
  require_shape("scatter_add_rows: y", y, y.rows, x.cols);
}

void check_add_gathered_rows(const Tensor& x, std::int64_t count, const Tensor& y) {
  require_shape("add_gathered_rows: x", x, x.rows, y.cols);
  require(count >= 0, "add_gathered_rows: {} rows a row cannot be added", count);
}

ProductSizes check_gemm(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
                        const Tensor& c) {
  const bool turned_a = trans_a == Transpose::yes, turned_b = trans_b == Transpose::yes;
  const ProductSizes sizes{turned_a ? a.cols : a.rows, turned_b ? b.rows : b.cols,
                           turned_a ? a.rows : a.cols};
  require((turned_b ? b.cols : b.rows) == sizes.k && c.rows == sizes.m && c.cols == sizes.n,
          "gemm: a {}x{}{}, b {}x{}{} and c {}x{} do not fit", a.rows, a.cols,
          turned_a ? " transposed" : "", b.rows, b.cols, turned_b ? " transposed" : "", c.rows,
          c.cols);
  require_dtype("gemm: b", b, a.dtype);
  require(c.dtype == a.dtype || c.dtype == accumulate_type(a.dtype), "gemm: c is {}, a is {}",
          name_of(c.dtype), name_of(a.dtype));
  return sizes;
}

void check_gemm_addend(const Tensor& addend, const Tensor& c) {
  require_matrix("gemm_add: addend", addend, c.rows, c.cols, c.dtype);
}

void check_bias(const Tensor& bias, const Tensor& y) {
  require_matrix("add_bias: bias", bias, 1, y.cols, y.dtype);
}

void check_bias_gradient(const Tensor& dy, const Tensor& dbias) {
  require_matrix("bias_gradient: dbias", dbias, 1, dy.cols, accumulate_type(dy.dtype));
}

void check_embedding(const Tensor& table, const Tensor& y) {
  require_matrix("embedding_forward: y", y, y.rows, table.cols, table.dtype);
}

void check_embedding_gradient(std::span<const std::int32_t> ids, const Tensor& dy,
                              const Tensor& dtable) {
  require(static_cast<std::int64_t>(ids.size()) == dy.rows, "embedding_backward: {} ids for {} rows",
          ids.size(), dy.rows);
  require_matrix("embedding_backward: dtable", dtable, dtable.rows, dy.cols,
                 accumulate_type(dy.dtype));
  require_indices("embedding_backward: ids", ids.data(), dy.rows, dtable.rows);
}

namespace {

/// Of the residual stream: T or A, where the weight has T.
void check_rms_norm_input(const char* operation, const Tensor& x, const Tensor& weight) {
  require(weight.rows == 1 && weight.cols == x.cols, "{}: weight is {} x {}, expected 1 x {}",
          operation, weight.rows, weight.cols, x.cols);
  require(x.dtype == weight.dtype || x.dtype == accumulate_type(weight.dtype),
          "{}: x is {}, weight is {}", operation, name_of(x.dtype), name_of(weight.dtype));
}

}  // namespace

void check_rms_norm(const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor& rstd) {
  check_rms_norm_input("rms_norm_forward", x, weight);
  require_matrix("rms_norm_forward: y", y, x.rows, x.cols, weight.dtype);
  require_matrix("rms_norm_forward: rstd", rstd, x.rows, 1, accumulate_type(weight.dtype));
}

void check_rms_norm_gradient(const Tensor& x, const Tensor& weight, const Tensor& rstd,
                             const Tensor& dy, const Tensor& dx, const Tensor& dweight) {
  const DType sum = accumulate_type(weight.dtype);
  check_rms_norm_input("rms_norm_backward", x, weight);
  require_matrix("rms_norm_backward: rstd", rstd, x.rows, 1, sum);
  require_matrix("rms_norm_backward: dy", dy, x.rows, x.cols, weight.dtype);
  require_matrix("rms_norm_backward: dx", dx, x.rows, x.cols, x.dtype);
  require_matrix("rms_norm_backward: dweight", dweight, 1, x.cols, sum);
}

namespace {

void check_rotary(const HeadRotary& args, const Tensor& like, const Tensor& rstd) {
  const RotaryTable& table = args.table;
  const DType sum = accumulate_type(like.dtype);
  require(args.heads >= 0 && args.head_dim > 0 && like.cols == args.heads * args.head_dim,
          "head_rotary: {} columns are not {} heads of {}", like.cols, args.heads, args.head_dim);
  if (!args.norm_weight.empty()) {
    require_matrix("head_rotary: norm_weight", args.norm_weight, 1, args.head_dim, like.dtype);
    require_matrix("head_rotary: rstd", rstd, like.rows, args.heads, sum);
  }
  if (!table.cos.empty()) {
    require_matrix("head_rotary: sin", table.sin, table.cos.rows, table.cos.cols, sum);
    require_dtype("head_rotary: cos", table.cos, sum);
    require(2 * table.cos.cols <= args.head_dim, "head_rotary: {} rotary channels of {}",
            2 * table.cos.cols, args.head_dim);
  }
  if (!table.temperature.empty())
    require_dtype("head_rotary: temperature", table.temperature, sum);
}

void check_attention_inputs(const char* operation, const AttentionShape& shape, const Tensor& q,
                            std::span<const KeySource> sources) {
  require(shape.head_dim > 0 && shape.kv_heads > 0 && shape.heads > 0 &&
              shape.heads % shape.kv_heads == 0,
          "{}: {} heads of {} channels do not divide over {} key heads", operation, shape.heads,
          shape.head_dim, shape.kv_heads);
  require(shape.scale > 0, "{}: the scale of the scores is {}, expected a positive number",
          operation, shape.scale);
  require(q.cols == shape.heads * shape.head_dim, "{}: q has {} columns, expected {}", operation,
          q.cols, shape.heads * shape.head_dim);
  for (const KeySource& source : sources) {
    for (const Tensor& x : {source.key, source.value}) {
      require(x.rows == source.key.rows && x.cols == shape.kv_heads * shape.head_dim &&
                  x.dtype == q.dtype,
              "{}: a source's keys and values are {} x {} of {}, expected {} x {} of {}", operation,
              x.rows, x.cols, name_of(x.dtype), source.key.rows, shape.kv_heads * shape.head_dim,
              name_of(q.dtype));
    }
  }
}

}  // namespace

void check_head_rotary(const HeadRotary& args, const Tensor& x, const Tensor& y,
                       const Tensor& rstd) {
  require_matrix("head_rotary_forward: y", y, x.rows, x.cols, x.dtype);
  check_rotary(args, x, rstd);
}

void check_head_rotary_gradient(const HeadRotary& args, const Tensor& x, const Tensor& rstd,
                                const Tensor& dy, const Tensor& dx, const Tensor& dweight) {
  const DType sum = accumulate_type(dx.dtype);
  require_shape("head_rotary_backward: dx", dx, dy.rows, dy.cols);
  require(dy.dtype == dx.dtype || dy.dtype == sum, "head_rotary_backward: dy is {}, dx is {}",
          name_of(dy.dtype), name_of(dx.dtype));
  check_rotary(args, dx, rstd);
  if (args.norm_weight.empty()) return;
  require_matrix("head_rotary_backward: x", x, dy.rows, dy.cols, dx.dtype);
  require_matrix("head_rotary_backward: dweight", dweight, 1, args.head_dim, sum);
}

void check_swiglu(const Tensor& gate_up, const Tensor& y) {
  require_matrix("swiglu_forward: gate_up", gate_up, y.rows, 2 * y.cols, y.dtype);
}

void check_swiglu_gradient(const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up) {
  require_matrix("swiglu_backward: gate_up", gate_up, dy.rows, 2 * dy.cols, dy.dtype);
  require_matrix("swiglu_backward: dgate_up", dgate_up, dy.rows, 2 * dy.cols, dy.dtype);
}

void check_attention(const AttentionShape& shape, const Tensor& q,
                     std::span<const KeySource> sources, const Tensor& out, const Tensor& lse) {
  const DType sum = accumulate_type(q.dtype);
  check_attention_inputs("attention_forward", shape, q, sources);
  require_shape("attention_forward: out", out, q.rows, q.cols);
  require(out.dtype == q.dtype || out.dtype == sum,
          "attention_forward: out is {}, expected {} or {}", name_of(out.dtype), name_of(q.dtype),
          name_of(sum));
  require_matrix("attention_forward: lse", lse, q.rows, shape.heads, sum);
}

void check_attention_delta(const AttentionShape& shape, const Tensor& out, const Tensor& dout,
                           const Tensor& delta) {
  const std::int64_t width = shape.heads * shape.head_dim;
  require_shape("attention_delta: out", out, dout.rows, width);
  require_shape("attention_delta: dout", dout, dout.rows, width);
  require_matrix("attention_delta: delta", delta, dout.rows, shape.heads,
                 accumulate_type(dout.dtype));
}

void check_attention_gradient(const AttentionShape& shape, const Tensor& q,
                              const KeySource& source, const Tensor& lse, const Tensor& dout,
                              const Tensor& delta, const Tensor& dq, const Tensor& dkey,
                              const Tensor& dvalue) {
  const DType sum = accumulate_type(q.dtype);
  const std::int64_t keys = source.key.rows, width = source.key.cols;
  check_attention_inputs("attention_backward", shape, q, {&source, 1});
  require_matrix("attention_backward: lse", lse, q.rows, shape.heads, sum);
  require_matrix("attention_backward: dout", dout, q.rows, q.cols, q.dtype);
  require_matrix("attention_backward: delta", delta, q.rows, shape.heads, sum);
  require_matrix("attention_backward: dq", dq, q.rows, q.cols, sum);
  require_matrix("attention_backward: dkey", dkey, keys, width, sum);
  require_matrix("attention_backward: dvalue", dvalue, keys, width, sum);
}

void check_cross_entropy(const Tensor& logits, const Tensor& weight, std::int64_t excluded,
                         const Tensor& loss, const Tensor& dlogits) {
  require_dtype("cross_entropy: logits", logits, accumulate_type(dlogits.dtype));
  require_shape("cross_entropy: dlogits", dlogits, logits.rows, logits.cols);
  require_matrix("cross_entropy: weight", weight, logits.rows, 1, logits.dtype);
  require_matrix("cross_entropy: loss", loss, logits.rows, 1, logits.dtype);
  require(excluded < logits.cols,
          "cross_entropy: the excluded id {} is not below the vocabulary's {}", excluded,
          logits.cols);
}

void check_cross_entropy_statistics(const Tensor& logits, std::int64_t first,
                                    const Tensor& statistics) {
  require_matrix("cross_entropy_statistics: statistics", statistics, logits.rows, 3, logits.dtype);
  require(first >= 0, "cross_entropy_statistics: the first id is {}", first);
}

void check_merge_cross_entropy(const Tensor& parts, const Tensor& statistics, const Tensor& loss) {
  require_matrix("merge_cross_entropy: statistics", statistics, loss.rows, 3, loss.dtype);
  require_matrix("merge_cross_entropy: parts", parts, parts.rows, 3, loss.dtype);
  require(loss.rows > 0 ? parts.rows > 0 && parts.rows % loss.rows == 0 : parts.rows == 0,
          "merge_cross_entropy: {} rows of statistics are not some for each of {}", parts.rows,
          loss.rows);
}

void check_cross_entropy_gradient(const Tensor& logits, std::int64_t first, const Tensor& weight,
                                  const Tensor& statistics, const Tensor& dlogits) {
  require_dtype("cross_entropy_gradient: logits", logits, accumulate_type(dlogits.dtype));
  require_shape("cross_entropy_gradient: dlogits", dlogits, logits.rows, logits.cols);
  require_matrix("cross_entropy_gradient: weight", weight, logits.rows, 1, logits.dtype);
  require_matrix("cross_entropy_gradient: statistics", statistics, logits.rows, 3, logits.dtype);
  require(first >= 0, "cross_entropy_gradient: the first id is {}", first);
}

void check_adamw(const AdamW& args, std::span<const DecayRun> runs, const Tensor& master,
                 const Tensor& gradient, const Tensor& first, const Tensor& second,
                 const Tensor& compute) {
  const std::int64_t n = master.cols;
  const DType state = accumulate_type(compute.dtype);
  require_matrix("adamw: master", master, 1, n, state);
  require_matrix("adamw: gradient", gradient, 1, n, state);
  require_matrix("adamw: first", first, 1, n, state);
  require_matrix("adamw: second", second, 1, n, state);
  require_shape("adamw: compute", compute, 1, n);
  require(args.step >= 1, "adamw: step {} is not counted from 1", args.step);
  std::int64_t covered = 0;
  for (const DecayRun& run : runs) {
    require(run.begin == covered && run.count >= 0,
            "adamw: the run of {} elements at {} does not follow the {} before it", run.count,
            run.begin, covered);
    covered += run.count;
  }
  require(covered == n, "adamw: the runs cover {} of {} elements", covered, n);
}

}  // namespace bdlm
