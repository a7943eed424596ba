// SPDX-License-Identifier: Apache-2.0
// The bias of a linear layer and its gradient, the sum of rows.
#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {

void CpuDevice::add_bias(Tensor bias, Tensor y) {
  check_bias(bias, y);
  dispatch(y.dtype, [&]<class T>() {
    const Rows<T> to(y);
    const T* b = bias.as<T>();
    parallel_ranges(threads_, y.rows, y.size(), [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        T* out = to[row];
#pragma omp simd
        for (std::int64_t j = 0; j < y.cols; ++j) store(out[j], load(out[j]) + load(b[j]));
      }
    });
  });
}

void CpuDevice::bias_gradient(Tensor dy, Tensor dbias) {
  check_bias_gradient(dy, dbias);
  if (dy.empty()) return;
  const int team = useful_threads(threads_, dy.rows, dy.size());
  const Buffer partials = partial_sums(team, dy.cols, dbias.dtype);
  dispatch(dy.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<T> from(dy);
    const Rows<A> sums(partials);
    parallel_ranges(team, dy.rows, dy.size(), [&](int part, std::int64_t first, std::int64_t last) {
      A* sum = sums[part];
      for (std::int64_t row = first; row < last; ++row) {
        const T* in = from[row];
#pragma omp simd
        for (std::int64_t j = 0; j < dy.cols; ++j) sum[j] += load(in[j]);
      }
    });
  });
  add_partials(partials, dbias);
}

}  // namespace bdlm
