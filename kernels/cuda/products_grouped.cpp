// SPDX-License-Identifier: Apache-2.0
// cublasGemmGroupedBatchedEx is column-major as cuBLASLt is: c' = op(w)' a' for each group. Sizes
// are the host's, addresses lie on the device.
#ifndef BDLM_EMU
#include "kernels/cuda/products_grouped.h"

#include <cublas_v2.h>

#include <vector>

namespace bdlm::cuda {
namespace {

void check_blas(cublasStatus_t status, const char* operation) {
  require(status == CUBLAS_STATUS_SUCCESS, "cuBLAS: {} failed: {} ({})", operation,
          cublasGetStatusString(status), cublasGetStatusName(status));
}

/// Every row begins at a multiple of 16 bytes, so every group does. cuBLAS asks for it with 16-bit
/// elements.
bool aligned(const Tensor& x) {
  return reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 &&
         static_cast<std::uintptr_t>(x.stride) * size_of(x.dtype) % 16 == 0;
}

}  // namespace

GroupedProducts::~GroupedProducts() {
  if (handle_) cublasDestroy(handle_);
}

bool GroupedProducts::multiply(const Tensor& a, std::span<const std::int64_t> rows,
                               const Tensor& w, Transpose trans_w, const Tensor& c) {
  // f64 and results of another type than the inputs are not among cuBLAS' grouped products.
  if (a.dtype == DType::f64 || c.dtype != a.dtype) return false;
  if (!aligned(a) || !aligned(w) || !aligned(c) || a.cols == 0) return false;

  const std::int64_t each = w.rows / static_cast<std::int64_t>(rows.size());
  std::vector<std::int64_t> tokens;
  std::vector<const void*> addresses[3];  // of w, a and c
  std::int64_t first = 0, group = 0;
  for (const std::int64_t count : rows) {
    if (count > 0) {
      tokens.push_back(count);
      addresses[0].push_back(w.slice_rows(group * each, each).data);
      addresses[1].push_back(a.slice_rows(first, count).data);
      addresses[2].push_back(c.slice_rows(first, count).data);
    }
    first += count;
    ++group;
  }
  const std::size_t groups = tokens.size();
  if (groups == 0) return true;
  if (handle_ == nullptr) {
    check_blas(cublasCreate(&handle_), "cublasCreate");
    check_blas(cublasSetStream(handle_, stream_), "cublasSetStream");
  }

  std::vector<const void*> all;
  for (const auto& of : addresses) all.insert(all.end(), of.begin(), of.end());
  const auto list = device_.upload(std::span<const void* const>(all));
  const auto at = [&](std::size_t matrix) { return list.data + matrix * groups; };
  const auto same = [&](auto value) { return std::vector<decltype(value)>(groups, value); };
  const auto turned = same(trans_w == Transpose::yes ? CUBLAS_OP_T : CUBLAS_OP_N);
  const auto plain = same(CUBLAS_OP_N);
  const auto out = same(c.cols), inner = same(a.cols), one = same(std::int64_t{1});
  const auto w_stride = same(w.stride), a_stride = same(a.stride), c_stride = same(c.stride);
  const auto alpha = same(1.0f), beta = same(0.0f);
  const cudaDataType_t type = a.dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
  const cublasStatus_t status = cublasGemmGroupedBatchedEx_64(
      handle_, turned.data(), plain.data(), out.data(), tokens.data(), inner.data(), alpha.data(),
      at(0), type, w_stride.data(), at(1), type, a_stride.data(), beta.data(),
      const_cast<void* const*>(at(2)), type, c_stride.data(), static_cast<std::int64_t>(groups),
      one.data(), CUBLAS_COMPUTE_32F);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return false;
  check_blas(status, "cublasGemmGroupedBatchedEx");
  return true;
}

}  // namespace bdlm::cuda
#endif
