// SPDX-License-Identifier: Apache-2.0
// What the softmax gradient subtracts from every score's: the dot product of output and its
// gradient.
#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {

void CpuDevice::attention_delta(const AttentionShape& shape, Tensor out, Tensor dout,
                                Tensor delta) {
  check_attention_delta(shape, out, dout, delta);
  dispatch(out.dtype, [&]<class Out>() {
    dispatch(dout.dtype, [&]<class T>() {
      using A = accumulate_t<T>;
      const Rows<Out> x(out);
      const Rows<T> y(dout);
      const Rows<A> sums(delta);
      parallel_ranges(threads_, dout.rows, dout.size(),
                      [&](int, std::int64_t first, std::int64_t last) {
                        for (std::int64_t i = first; i < last; ++i) {
                          for (std::int64_t head = 0; head < shape.heads; ++head) {
                            const Out* a = x[i] + head * shape.head_dim;
                            const T* b = y[i] + head * shape.head_dim;
                            A sum = 0;
#pragma omp simd reduction(+ : sum)
                            for (std::int64_t c = 0; c < shape.head_dim; ++c) {
                              sum += static_cast<A>(load(a[c])) * load(b[c]);
                            }
                            sums[i][head] = sum;
                          }
                        }
                      });
    });
  });
}

}  // namespace bdlm
