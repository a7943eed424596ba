// SPDX-License-Identifier: Apache-2.0
// Root-mean-square norm (Zhang and Sennrich, arXiv 1910.07467) over a row.
#include <cmath>

#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {

void CpuDevice::rms_norm_forward(Tensor x, Tensor weight, double eps, Tensor y, Tensor rstd) {
  check_rms_norm(x, weight, y, rstd);
  dispatch_with_sums(weight.dtype, x.dtype, [&]<class T, class X>() {
    using A = accumulate_t<T>;
    const Rows<X> from(x);
    const Rows<T> to(y);
    const Rows<A> scales(rstd);
    const T* w = weight.as<T>();
    parallel_ranges(threads_, x.rows, x.size(), [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        const X* in = from[row];
        T* out = to[row];
        A squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t j = 0; j < x.cols; ++j) squares += load(in[j]) * load(in[j]);
        const A scale = A(1) / std::sqrt(squares / static_cast<A>(x.cols) + static_cast<A>(eps));
        scales[row][0] = scale;
#pragma omp simd
        for (std::int64_t j = 0; j < x.cols; ++j) store(out[j], load(in[j]) * scale * load(w[j]));
      }
    });
  });
}

// With n = x rstd: dx = rstd (w dy - n mean(n w dy)) and dw = sum over rows of n dy.
void CpuDevice::rms_norm_backward(Tensor x, Tensor weight, Tensor rstd, Tensor dy, Tensor dx,
                                  Tensor dweight) {
  check_rms_norm_gradient(x, weight, rstd, dy, dx, dweight);
  if (x.empty()) return;
  const int team = useful_threads(threads_, x.rows, x.size());
  const Buffer partials = partial_sums(team, x.cols, rstd.dtype);
  dispatch_with_sums(weight.dtype, x.dtype, [&]<class T, class X>() {
    using A = accumulate_t<T>;
    const Rows<X> inputs(x), outputs(dx);
    const Rows<T> gradients(dy);
    const Rows<A> scales(rstd), sums(partials);
    const T* w = weight.as<T>();
    parallel_ranges(team, x.rows, x.size(), [&](int part, std::int64_t first, std::int64_t last) {
      A* sum = sums[part];
      for (std::int64_t row = first; row < last; ++row) {
        const X* in = inputs[row];
        const T* grad = gradients[row];
        X* out = outputs[row];
        const A scale = scales[row][0];
        A dot = 0;
#pragma omp simd reduction(+ : dot)
        for (std::int64_t j = 0; j < x.cols; ++j) {
          dot += load(in[j]) * load(w[j]) * load(grad[j]);
        }
        const A mean = dot * scale / static_cast<A>(x.cols);
#pragma omp simd
        for (std::int64_t j = 0; j < x.cols; ++j) {
          const A normed = load(in[j]) * scale, g = load(grad[j]);
          store(out[j], load(out[j]) + scale * (load(w[j]) * g - normed * mean));
          sum[j] += normed * g;
        }
      }
    });
  });
  add_partials(partials, dweight);
}

}  // namespace bdlm
