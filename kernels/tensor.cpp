// SPDX-License-Identifier: Apache-2.0
// Names of the dtypes, as users write them in run files and read them in errors.
#include "kernels/tensor.h"

namespace bdlm {

const char* name_of(DType type) {
  switch (type) {
    case DType::f64:
      return "f64";
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
  }
  return "unknown";
}

}  // namespace bdlm
