// SPDX-License-Identifier: Apache-2.0
// Matrix products on the device: cuBLASLt (products_cublaslt.cpp), or the CPU backend's under
// emulation (products_emulated.cpp).
#pragma once

#include <memory>

#include "kernels/checks.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device.h"

namespace bdlm::cuda {

class Products {
 public:
  virtual ~Products() = default;
  /// c = op(a) op(b) + addend; no addend (empty): without it; addend may be c. Row-major, checked.
  virtual void multiply(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
                        const Tensor& addend, const Tensor& c, const ProductSizes& sizes) = 0;
};

/// Enqueues on `stream`; workspace comes from `device`.
std::unique_ptr<Products> make_products(Device& device, Stream stream);

}  // namespace bdlm::cuda
