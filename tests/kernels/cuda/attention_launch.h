// SPDX-License-Identifier: Apache-2.0
// From an AttentionCase to what the launch functions of kernels/cuda/attention_ops.h take: typed
// views of inputs whose rows are aligned as a kernel needs, and schedules for a kernel's tiles.
#pragma once

#include <deque>

#include "kernels/cuda/attention_ops.h"
#include "tests/kernels/attention_case.h"

namespace bdlm::test {

template <class T>
cuda::View<T> view_of(const Tensor& x) {
  return {x.as<std::remove_const_t<T>>(), x.rows, x.cols, x.stride};
}

/// The same values with `padding` elements behind each row.
inline TestMatrix with_padding(const TestMatrix& x, std::int64_t padding) {
  const Tensor& t = x.tensor();
  return TestMatrix(t.dtype, t.rows, t.cols, padding).from(x.values<double>());
}

/// The memory of one call's inputs. The case must outlive it.
template <class T>
class AttentionLaunch {
 public:
  using Sum = cuda::sum_t<T>;

  /// `padding` elements behind each row of q, dout and the fused keys and values: a multiple of 8
  /// where a bfloat16 kernel needs rows of 16-byte units (TestMatrix starts at such a unit).
  AttentionLaunch(const AttentionCase& c, const cuda::AttentionChoice& tiles, std::int64_t padding)
      : case_(c), q_(with_padding(c.q, padding)), dout_(with_padding(c.dout, padding)) {
    for (std::size_t s = 0; s < c.sets.size(); ++s) {
      fused_.push_back(with_padding(c.fused[s], padding));
      const IntervalSet& set = c.sets[s];
      forward_.push_back(by_query(set, tiles.forward));
      backward_query_.push_back(by_query(set, tiles.backward_query));
      backward_key_.push_back(cuda::schedule_by_key(set.visible, set.keys, tiles.backward_key.rows,
                                                    tiles.backward_key.keys));
    }
  }

  /// Sources [first, last) of the case. `out` has dtype T or Sum.
  cuda::AttentionForward<T> forward(std::size_t first, std::size_t last, const Tensor& out,
                                    const Tensor& lse, bool resume) const {
    cuda::AttentionForward<T> args{sizes(), view_of<const T>(q_), {}, 0, {}, {}, {}, resume};
    for (std::size_t s = first; s < last; ++s) {
      args.sources[args.source_count++] = source(s, forward_[s]);
    }
    if (out.dtype == dtype_of<T>()) {
      args.out = view_of<T>(out);
    } else {
      args.out_sum = view_of<Sum>(out);
    }
    // A type that is its own sum: a resumed result is a sum.
    if (std::is_same_v<T, Sum> && resume) {
      args.out = {};
      args.out_sum = view_of<Sum>(out);
    }
    args.lse = view_of<Sum>(lse);
    return args;
  }
  cuda::AttentionForward<T> forward(const Tensor& out, const Tensor& lse) const {
    return forward(0, case_.sets.size(), out, lse, false);
  }

  /// Source s. `dfused`: dkey and dvalue beside each other, as AttentionCase::fused.
  cuda::AttentionBackward<T> backward(std::size_t s, const Tensor& lse, const Tensor& delta,
                                      const Tensor& dq, const Tensor& dfused) const {
    const std::int64_t cols = case_.key_cols();
    return {sizes(),
            view_of<const T>(q_),
            source(s, backward_query_[s]),
            source(s, backward_key_[s]),
            view_of<const T>(dout_),
            view_of<const Sum>(lse),
            view_of<const Sum>(delta),
            view_of<Sum>(dq),
            view_of<Sum>(dfused.slice_cols(0, cols)),
            view_of<Sum>(dfused.slice_cols(cols, cols))};
  }

 private:
  static cuda::TileSchedule by_query(const IntervalSet& set, cuda::AttentionTiles tiles) {
    return cuda::schedule_by_query(set.visible, set.keys, tiles.rows, tiles.keys);
  }

  cuda::AttentionSizes sizes() const {
    const AttentionShape& shape = case_.shape;
    return {static_cast<std::int32_t>(shape.heads), static_cast<std::int32_t>(shape.kv_heads),
            static_cast<std::int32_t>(shape.head_dim), shape.scale};
  }

  cuda::AttentionSource<T> source(std::size_t s, const cuda::TileSchedule& schedule) const {
    const std::int64_t cols = case_.key_cols();
    const Tensor& both = fused_[s].tensor();
    return {view_of<const T>(both.slice_cols(0, cols)),
            view_of<const T>(both.slice_cols(cols, cols)), case_.sets[s].visible.data(),
            cuda::TileList{schedule.order.data(), schedule.begin.data(), schedule.runs.data(),
                           static_cast<std::int32_t>(schedule.order.size())}};
  }

  const AttentionCase& case_;
  TestMatrix q_, dout_;
  std::vector<TestMatrix> fused_;
  std::deque<cuda::TileSchedule> forward_, backward_query_, backward_key_;  // addresses are kept
};

}  // namespace bdlm::test
