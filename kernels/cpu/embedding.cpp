// SPDX-License-Identifier: Apache-2.0
// Token embedding: a row of the table for each id, and the sum of gradients of equal ids.
#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"
#include "kernels/dispatch.h"
#include "kernels/cpu/parallel.h"

namespace bdlm {

void CpuDevice::embedding_forward(const std::int32_t* ids, Tensor table, Tensor y) {
  check_embedding(table, y);
  gather_rows(table, ids, y);
}

void CpuDevice::embedding_backward(std::span<const std::int32_t> ids, Tensor dy, Tensor dtable) {
  check_embedding_gradient(ids, dy, dtable);
  // Ids repeat, so threads share columns and not rows: each adds its columns in the order of rows,
  // whatever the number of threads. A block is a cache line of the table.
  constexpr std::int64_t block = 16;
  dispatch(dy.dtype, [&]<class T>() {
    const Rows<T> from(dy);
    const Rows<accumulate_t<T>> to(dtable);
    parallel_ranges(threads_, (dy.cols + block - 1) / block, dy.size(),
                    [&](int, std::int64_t first, std::int64_t last) {
                      const std::int64_t begin = first * block;
                      const std::int64_t end = std::min(last * block, dy.cols);
                      for (std::int64_t i = 0; i < dy.rows; ++i) {
                        const T* in = from[i];
                        auto* out = to[ids[static_cast<std::size_t>(i)]];
#pragma omp simd
                        for (std::int64_t j = begin; j < end; ++j) out[j] += load(in[j]);
                      }
                    });
  });
}

}  // namespace bdlm
