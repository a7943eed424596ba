// SPDX-License-Identifier: Apache-2.0
// For tests that call launch functions: the emulation's device memory is the host's.
#pragma once

#include "kernels/cuda/ops.h"
#include "kernels/cuda/tensor_view.h"
#include "tests/kernels/matrices.h"

namespace bdlm::test {

/// Launches are enqueued: to be called before results are read.
inline void wait() { cuda::check_cuda(cudaStreamSynchronize(nullptr), "a kernel test"); }

/// body.operator()<T>() for every dtype.
template <class Body>
void on_types(Body&& body) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
    dispatch(type, [&]<class T>() { body.template operator()<T>(); });
  }
}

/// Besides `shapes`: rows that are whole 16-byte vectors in every dtype, narrow and wide, with more
/// than one block side by side.
inline const std::vector<Shape> aligned_shapes{{1, 8, 0}, {37, 16, 8}, {9, 264, 16}, {3, 8216, 8}};

inline std::vector<Shape> all_shapes() {
  std::vector<Shape> all{{0, 8, 0}, {1, 1, 0}, {1, 67, 5}, {37, 20, 0}, {37, 33, 7}, {301, 59, 3}};
  all.insert(all.end(), aligned_shapes.begin(), aligned_shapes.end());
  return all;
}

}  // namespace bdlm::test
