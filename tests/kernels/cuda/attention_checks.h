// SPDX-License-Identifier: Apache-2.0
// What every attention kernel of the CUDA backend has to fulfil: the same checks for all of them.
#pragma once

#include "tests/kernels/cuda/attention_launch.h"

namespace bdlm::test {

/// A kernel's launch functions, the tiles its schedules need, and the row padding of its inputs.
template <class T>
struct AttentionKernels {
  void (*forward)(cuda::Stream, const cuda::AttentionForward<T>&);
  void (*backward)(cuda::Stream, const cuda::AttentionBackward<T>&);
  cuda::AttentionChoice tiles;
  std::int64_t padding = 0;
};

struct AttentionOutput {
  TestMatrix out, lse;
};

/// Output rows of an odd stride: nothing may be written between them.
inline AttentionOutput empty_attention_output(const AttentionCase& c, DType out_type,
                                              std::int64_t padding) {
  return {TestMatrix(out_type, c.rows, c.shape.heads * c.shape.head_dim, padding),
          TestMatrix(accumulate_type(c.dtype), c.rows, c.shape.heads, 1)};
}

/// All in the highest precision at hand; lse and delta also as the backward pass is given them.
struct AttentionTruth {
  reference::Matrix<Truth> out, lse, delta;
  TestMatrix saved_lse, saved_delta;

  explicit AttentionTruth(const AttentionCase& c)
      : out(c.rows, c.q.tensor().cols),
        lse(c.rows, c.shape.heads),
        delta(c.rows, c.shape.heads),
        saved_lse(accumulate_type(c.dtype), c.rows, c.shape.heads, 2),
        saved_delta(accumulate_type(c.dtype), c.rows, c.shape.heads, 1) {
    reference::attention_forward(c.shape, c.q.values<Truth>(), c.plain_sources<Truth>(), out, lse);
    reference::attention_delta(c.shape, out, c.dout.values<Truth>(), delta);
    std::move(saved_lse).from(lse);  // in place
    std::move(saved_delta).from(delta);
  }
};

inline void check_attention_output(const AttentionCase& c, const AttentionTruth& truth,
                                   const AttentionOutput& result) {
  check_norm("out", result.out, truth.out, c.dtype, 4);
  // Scores are sums in the accumulate type: exact inputs, so its rounding counts.
  check_norm("lse", result.lse, truth.lse, accumulate_type(c.dtype),
             c.dtype == DType::bf16 ? 32 : 4);
}

/// One call with all sources; with the output in T and in its sum type; then source by source.
template <class T>
void check_attention_forward(const AttentionCase& c, const AttentionKernels<T>& kernels) {
  const AttentionTruth truth(c);
  const AttentionLaunch<T> launch(c, kernels.tiles, kernels.padding);
  const DType sum = accumulate_type(c.dtype);
  for (const DType out_type : {c.dtype, sum}) {
    const std::int64_t padding = out_type == DType::bf16 ? kernels.padding : 3;
    AttentionOutput result = empty_attention_output(c, out_type, padding);
    kernels.forward(nullptr, launch.forward(result.out, result.lse));
    check_attention_output(c, truth, result);
  }
  if (c.sets.size() < 2) return;
  AttentionOutput result = empty_attention_output(c, sum, 2);
  for (std::size_t s = 0; s < c.sets.size(); ++s) {
    kernels.forward(nullptr, launch.forward(s, s + 1, result.out, result.lse, s > 0));
  }
  check_attention_output(c, truth, result);
}

struct AttentionGradients {
  TestMatrix dq;
  std::vector<TestMatrix> dfused;
};

template <class T>
AttentionGradients attention_gradients(const AttentionCase& c, const TestMatrix& lse,
                                       const TestMatrix& delta, const AttentionKernels<T>& kernels,
                                       double before) {
  const AttentionLaunch<T> launch(c, kernels.tiles, kernels.padding);
  const DType sum = accumulate_type(c.dtype);
  AttentionGradients g{TestMatrix(sum, c.rows, c.q.tensor().cols, 3).filled(before), {}};
  for (std::size_t s = 0; s < c.sets.size(); ++s) {
    g.dfused.push_back(TestMatrix(sum, c.sets[s].keys, 2 * c.key_cols(), 2).filled(before));
    kernels.backward(nullptr, launch.backward(s, lse, delta, g.dq, g.dfused[s]));
  }
  return g;
}

/// Gradients are added to what was there before.
template <class T>
void check_attention_backward(const AttentionCase& c, const AttentionKernels<T>& kernels,
                              double before = 0.25) {
  const AttentionTruth truth(c);
  const AttentionGradients g =
      attention_gradients(c, truth.saved_lse, truth.saved_delta, kernels, before);
  reference::Matrix<Truth> dq(c.rows, c.q.tensor().cols);
  for (Truth& value : dq.values) value = before;
  for (std::size_t s = 0; s < c.sets.size(); ++s) {
    const std::int64_t keys = c.sets[s].keys, cols = c.key_cols();
    reference::Matrix<Truth> dkey(keys, cols), both(keys, 2 * cols);
    for (Truth& value : dkey.values) value = before;
    reference::Matrix<Truth> dvalue = dkey;
    reference::attention_backward(c.shape, c.q.values<Truth>(), c.plain_source<Truth>(s), truth.lse,
                                  c.dout.values<Truth>(), truth.delta, dq, dkey, dvalue);
    for (std::int64_t k = 0; k < keys; ++k) {
      for (std::int64_t j = 0; j < cols; ++j) {
        both(k, j) = dkey(k, j);
        both(k, cols + j) = dvalue(k, j);
      }
    }
    check_norm("dkey and dvalue", g.dfused[s], both, c.dtype, 8);
  }
  check_norm("dq", g.dq, dq, c.dtype, 8);
}

/// Rows without keys: output 0, log-sum-exp -infinity, and a resumed result stays.
template <class T>
void check_attention_without_keys(const AttentionKernels<T>& kernels, std::int64_t head_dim) {
  const DType sum = accumulate_type(dtype_of<T>());
  const AttentionCase c(dtype_of<T>(), 2, 1, head_dim,
                        {IntervalSet{0, std::vector<Interval>(70)},
                         IntervalSet{9, std::vector<Interval>(70, Interval{7, 2})}});
  const AttentionLaunch<T> launch(c, kernels.tiles, kernels.padding);
  for (const std::size_t sources : {0, 1, 2}) {
    AttentionOutput result = empty_attention_output(c, sum, 3);
    kernels.forward(nullptr, launch.forward(0, sources, result.out, result.lse, false));
    check_attention_output(c, AttentionTruth(c), result);
  }
  const AttentionCase seen(dtype_of<T>(), 2, 1, head_dim, {random_intervals(70, 50, 13)});
  const AttentionTruth truth(seen);
  AttentionOutput result = empty_attention_output(seen, sum, 1);
  std::move(result.out).from(truth.out);
  std::move(result.lse).from(truth.lse);
  for (const std::size_t sources : {0, 1, 2}) {
    kernels.forward(nullptr, launch.forward(0, sources, result.out, result.lse, true));
    check_attention_output(seen, truth, result);
  }
}

/// Rows whose log-sum-exp is -infinity contribute nothing, whatever their delta is.
template <class T>
void check_attention_of_unseen_rows(const AttentionKernels<T>& kernels, std::int64_t head_dim) {
  const DType sum = accumulate_type(dtype_of<T>());
  // 64 keys and rows: tiles that need no mask.
  const AttentionCase c(dtype_of<T>(), 2, 1, head_dim,
                        {IntervalSet{64, std::vector<Interval>(64, Interval{0, 64})}});
  const TestMatrix lse =
      TestMatrix(sum, c.rows, 2).filled(-std::numeric_limits<double>::infinity());
  const TestMatrix delta =
      TestMatrix(sum, c.rows, 2).filled(std::numeric_limits<double>::quiet_NaN());
  const AttentionGradients g = attention_gradients(c, lse, delta, kernels, 2);
  const TestMatrix dq = TestMatrix(sum, c.rows, 2 * head_dim, 3).filled(2);
  const TestMatrix dfused = TestMatrix(sum, 64, 2 * head_dim, 2).filled(2);
  CHECK((g.dq.bytes() == dq.bytes()));  // not printed byte by byte
  CHECK((g.dfused[0].bytes() == dfused.bytes()));
}

}  // namespace bdlm::test
