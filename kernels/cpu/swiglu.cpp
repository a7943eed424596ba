// SPDX-License-Identifier: Apache-2.0
// The gated unit of the MLP, silu(gate) * up (Shazeer, arXiv 2002.05202).
#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"
#include "kernels/cpu/vector_math.h"

namespace bdlm {

void CpuDevice::swiglu_forward(Tensor gate_up, Tensor y) {
  check_swiglu(gate_up, y);
  dispatch(y.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<T> from(gate_up), to(y);
    parallel_elements(threads_, y.rows, y.cols,
                      [&](std::int64_t row, std::int64_t first, std::int64_t last) {
                        const T* gate = from[row];
                        const T* up = gate + y.cols;
                        T* out = to[row];
#pragma omp simd
                        for (std::int64_t j = first; j < last; ++j) {
                          const A g = load(gate[j]);
                          store(out[j], g / (A(1) + fast_exp(-g)) * load(up[j]));
                        }
                      });
  });
}

void CpuDevice::swiglu_backward(Tensor gate_up, Tensor dy, Tensor dgate_up) {
  check_swiglu_gradient(gate_up, dy, dgate_up);
  dispatch(dy.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<T> inputs(gate_up), gradients(dy), outputs(dgate_up);
    parallel_elements(threads_, dy.rows, dy.cols,
                      [&](std::int64_t row, std::int64_t first, std::int64_t last) {
                        const T* gate = inputs[row];
                        const T* up = gate + dy.cols;
                        const T* grad = gradients[row];
                        T* dgate = outputs[row];
                        T* dup = dgate + dy.cols;
#pragma omp simd
                        for (std::int64_t j = first; j < last; ++j) {
                          const A g = load(gate[j]), u = load(up[j]), d = load(grad[j]);
                          const A sigmoid = A(1) / (A(1) + fast_exp(-g));
                          store(dgate[j], d * u * sigmoid * (A(1) + g * (A(1) - sigmoid)));
                          store(dup[j], d * g * sigmoid);
                        }
                      });
  });
}

void CpuDevice::weighted_swiglu_forward(Tensor gate_up, Tensor weight, Tensor y) {
  check_weighted_swiglu(gate_up, weight, y);
  dispatch(y.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<T> from(gate_up), to(y);
    const Rows<A> weights(weight);
    parallel_elements(threads_, y.rows, y.cols,
                      [&](std::int64_t row, std::int64_t first, std::int64_t last) {
                        const T* gate = from[row];
                        const T* up = gate + y.cols;
                        const A w = weights[row][0];
                        T* out = to[row];
#pragma omp simd
                        for (std::int64_t j = first; j < last; ++j) {
                          const A g = load(gate[j]);
                          store(out[j], g / (A(1) + fast_exp(-g)) * load(up[j]) * w);
                        }
                      });
  });
}

void CpuDevice::weighted_swiglu_backward(Tensor gate_up, Tensor weight, Tensor dy, Tensor dgate_up,
                                         Tensor dweight, Tensor y) {
  check_weighted_swiglu_gradient(gate_up, weight, dy, dgate_up, dweight, y);
  dispatch(dy.dtype, [&]<class T>() {
    using A = accumulate_t<T>;
    const Rows<T> inputs(gate_up), gradients(dy), outputs(dgate_up), again(y);
    const Rows<A> weights(weight), dweights(dweight);
    const auto backward = [&](std::int64_t row) {
      const T* gate = inputs[row];
      const T* up = gate + dy.cols;
      const T* grad = gradients[row];
      T* dgate = outputs[row];
      T* dup = dgate + dy.cols;
      T* out = again[row];
      const A w = weights[row][0];
      A sum = 0;
#pragma omp simd reduction(+ : sum)
      for (std::int64_t j = 0; j < dy.cols; ++j) {
        const A g = load(gate[j]), u = load(up[j]), d = load(grad[j]);
        const A sigmoid = A(1) / (A(1) + fast_exp(-g));
        const A unit = g * sigmoid * u;
        sum += d * unit;
        store(dgate[j], w * d * u * sigmoid * (A(1) + g * (A(1) - sigmoid)));
        store(dup[j], w * d * g * sigmoid);
        store(out[j], unit * w);
      }
      dweights[row][0] = sum;
    };
    parallel_ranges(threads_, dy.rows, dy.size(), [&](int, std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) backward(row);
    });
  });
}

}  // namespace bdlm
