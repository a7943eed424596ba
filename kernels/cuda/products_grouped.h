// SPDX-License-Identifier: Apache-2.0
// Products of many groups of rows in one launch: cuBLAS' grouped products.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

struct cublasContext;

namespace bdlm::cuda {

class GroupedProducts {
 public:
  /// Enqueues on `stream`; lists of addresses come from `device`.
  GroupedProducts(Device& device, Stream stream) : device_(device), stream_(stream) {}
  ~GroupedProducts();
  GroupedProducts(const GroupedProducts&) = delete;
  GroupedProducts& operator=(const GroupedProducts&) = delete;

  /// As Device::grouped_gemm, checked. False where cuBLAS has no such product: nothing was done.
  bool multiply(const Tensor& a, std::span<const std::int64_t> rows, const Tensor& w,
                Transpose trans_w, const Tensor& c);

 private:
  Device& device_;
  Stream stream_;
  cublasContext* handle_ = nullptr;  // made when first needed: it takes memory of the device
};

}  // namespace bdlm::cuda
