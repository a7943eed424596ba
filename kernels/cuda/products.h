// SPDX-License-Identifier: Apache-2.0
// Matrix products on the device: cuBLASLt (products_cublaslt.cpp), or the CPU backend's under
// emulation (products_emulated.cpp).
#pragma once

#include <memory>
#include <span>

#include "kernels/checks.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace bdlm::cuda {

class Products {
 public:
  virtual ~Products() = default;
  /// c = op(a) op(b) + addend; no addend (empty): without it; addend may be c. Row-major, checked.
  /// like: sizes by which an algorithm is chosen, so that groups of nearly as many rows share one.
  virtual void multiply(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
                        const Tensor& addend, const Tensor& c, const ProductSizes& sizes,
                        const ProductSizes& like) = 0;
  /// As Device::grouped_gemm, in one launch, checked. False where that cannot be: nothing was done.
  virtual bool multiply_groups(const Tensor& a, std::span<const std::int64_t> rows,
                               const Tensor& w, Transpose trans_w, const Tensor& c) = 0;
};

/// Enqueues on `stream`; workspace comes from `device`.
std::unique_ptr<Products> make_products(Device& device, Stream stream);

}  // namespace bdlm::cuda
