// SPDX-License-Identifier: Apache-2.0
// What the library exports to kernels/backend.cpp. Both sides are built together, so C++ types and
// exceptions cross the border.
#include <cstdlib>

#include "kernels/backend.h"
#include "kernels/cuda/cuda_device.h"
#ifndef BDLM_EMU
#include <cublasLt.h>
#endif

using namespace bdlm;

#define BDLM_EXPORT extern "C" __attribute__((visibility("default")))

BDLM_EXPORT int bdlm_devices() {
  // Read when the driver starts. A stream a group of ranks and one for computation are more than the
  // eight hardware queues it makes by itself; of two streams in one queue, one that waits for another
  // rank can hold back the very work that this rank waits for. 32 is the most there are.
  ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int count = 0;  // not written when there is no driver
  const cudaError_t status = cudaGetDeviceCount(&count);
  require(status == cudaSuccess, "no CUDA device can be used: {} ({})", cudaGetErrorString(status),
          cudaGetErrorName(status));
  require(count > 0, "no CUDA device can be used: the driver shows none (is CUDA_VISIBLE_DEVICES set?)");
  return count;
}

BDLM_EXPORT std::string bdlm_versions() {
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  std::string text = fmt::format("CUDA runtime {}.{}, driver {}", runtime / 1000, runtime % 1000 / 10,
                                 driver == 0 ? "none" : fmt::format("for CUDA {}.{}", driver / 1000,
                                                                    driver % 1000 / 10));
#ifndef BDLM_EMU
  text += fmt::format(", cuBLASLt {}", cublasLtGetVersion());
#endif
  return text;
}

BDLM_EXPORT Device* bdlm_make_device(int index) { return new cuda::CudaDevice(index); }

/// Memory that host and device reach, for tests.
BDLM_EXPORT void* bdlm_allocate_managed(std::size_t bytes) {
  void* data = nullptr;
  cuda::check_cuda(cudaMallocManaged(&data, bytes), "cudaMallocManaged");
  return data;
}
/// Once nothing uses it any more.
BDLM_EXPORT void bdlm_free_managed(void* data) {
  cudaDeviceSynchronize();
  cudaFree(data);
}
