// SPDX-License-Identifier: Apache-2.0
// oneDNN matrix products by shape. Making a primitive takes about 1 ms (code is generated), running
// one that exists a few us, so the recent ones are kept.
#pragma once

#include <compare>
#include <cstdint>
#include <dnnl.hpp>
#include <map>

#include "kernels/device.h"

namespace bdlm {

/// Everything that a primitive is specialised to. c [m, n] = op(a) [m, k] op(b) [k, n].
struct ProductShape {
  std::int64_t m, n, k;
  std::int64_t stride_a, stride_b, stride_c;  // of the stored matrices
  Transpose trans_a, trans_b;
  DType input, output;
  Accumulate accumulate;
  auto operator<=>(const ProductShape&) const = default;
};

class ProductCache {
 public:
  struct Product {
    dnnl::matmul primitive;
    dnnl::memory::desc a, b, c, scratchpad;
    std::uint64_t last_use = 0;
  };

  explicit ProductCache(std::size_t capacity = 512)
      : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_), capacity_(capacity) {}

  /// Valid until the next call.
  const Product& get(const ProductShape& shape);
  dnnl::engine& engine() { return engine_; }
  dnnl::stream& stream() { return stream_; }
  std::size_t size() const { return products_.size(); }
  bool contains(const ProductShape& shape) const { return products_.contains(shape); }

 private:
  Product make(const ProductShape& shape);

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::size_t capacity_;
  std::map<ProductShape, Product> products_;
  std::uint64_t uses_ = 0;
};

}  // namespace bdlm
