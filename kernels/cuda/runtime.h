// SPDX-License-Identifier: Apache-2.0
// The CUDA runtime as the backend sees it: the toolkit's, or the emulation's (BDLM_EMU).
#pragma once

#ifdef BDLM_EMU
#include "kernels/emu/runtime_api.h"
#else
#include <cuda_runtime_api.h>
#endif

namespace bdlm::cuda {

using Stream = cudaStream_t;

/// Throws bdlm::Error that names the operation, the device and the runtime's own text.
[[noreturn]] void fail_cuda(const char* operation, cudaError_t status);

inline void check_cuda(cudaError_t status, const char* operation) {
  if (status != cudaSuccess) fail_cuda(operation, status);
}

}  // namespace bdlm::cuda
