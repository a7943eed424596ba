// SPDX-License-Identifier: Apache-2.0
// Writing one safetensors file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace bdlm {

struct SafetensorsTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;  // on disk; values are rounded to it
  /// Writes elements [begin, begin + count), row-major. Called in ascending order, once an element.
  std::function<void(std::int64_t begin, std::int64_t count, double* out)> produce;
};

/// The file appears under its name only when it is whole and on the disk; after a failure (Error
/// with the cause) what stood there before is untouched. Tensors are in the order given.
void write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors);

}  // namespace bdlm
