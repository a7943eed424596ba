// SPDX-License-Identifier: Apache-2.0
// Under emulation the CPU backend multiplies, in the order of the stream.
#ifdef BDLM_EMU
#include <memory>

#include "kernels/cuda/products.h"

namespace bdlm::cuda {
namespace {

struct Product {
  Device* cpu;
  Tensor a, b, addend, c;
  Transpose trans_a, trans_b;

  void run() const {
    const bool adds = addend.data != nullptr;
    if (adds && addend.data != c.data) cpu->copy(addend, c);
    cpu->gemm(a, trans_a, b, trans_b, c, adds ? Accumulate::yes : Accumulate::no);
  }
};

class EmulatedProducts final : public Products {
 public:
  explicit EmulatedProducts(Stream stream) : cpu_(make_cpu_device(1)), stream_(stream) {}

  void multiply(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
                const Tensor& addend, const Tensor& c, const ProductSizes&,
                const ProductSizes&) override {
    auto product = std::make_unique<Product>(Product{cpu_.get(), a, b, addend, c, trans_a, trans_b});
    check_cuda(cudaLaunchHostFunc(stream_, [](void* data) {
                 const std::unique_ptr<Product> mine(static_cast<Product*>(data));
                 mine->run();
               }, product.release()),
               "a product");
  }

  bool multiply_groups(const Tensor&, std::span<const std::int64_t>, const Tensor&, Transpose,
                       const Tensor&) override {
    return false;
  }

 private:
  std::unique_ptr<Device> cpu_;
  Stream stream_;
};

}  // namespace

std::unique_ptr<Products> make_products(Device&, Stream stream) {
  return std::make_unique<EmulatedProducts>(stream);
}

}  // namespace bdlm::cuda
#endif
