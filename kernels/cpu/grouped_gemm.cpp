// SPDX-License-Identifier: Apache-2.0
// Products of groups of rows, one after another: each takes all threads.
#include "kernels/checks.h"
#include "kernels/cpu/cpu_device.h"

namespace bdlm {

void CpuDevice::grouped_gemm(Tensor a, std::span<const std::int64_t> rows, Tensor w,
                             Transpose trans_w, Tensor c) {
  const std::int64_t each = check_grouped_gemm(a, rows, w, trans_w, c);
  std::int64_t first = 0, group = 0;
  for (const std::int64_t count : rows) {
    gemm(a.slice_rows(first, count), Transpose::no, w.slice_rows(each * group++, each), trans_w,
         c.slice_rows(first, count), Accumulate::no);
    first += count;
  }
}

void CpuDevice::grouped_gemm_gradient(Tensor dy, Tensor x, std::span<const std::int64_t> rows,
                                      Tensor dw) {
  const std::int64_t each = check_grouped_gemm_gradient(dy, x, rows, dw);
  std::int64_t first = 0, group = 0;
  for (const std::int64_t count : rows) {
    gemm(dy.slice_rows(first, count), Transpose::yes, x.slice_rows(first, count), Transpose::no,
         dw.slice_rows(each * group++, each), Accumulate::yes);
    first += count;
  }
}

}  // namespace bdlm
