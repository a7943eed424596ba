// SPDX-License-Identifier: Apache-2.0
// Runtime functions about errors and devices.
#include <cstdio>
#include <iterator>

#include "kernels/emu/config.h"
#include "kernels/emu/memory.h"
#include "kernels/emu/queues.h"
#include "kernels/emu/runtime_calls.h"

namespace bdlm::emu {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

constexpr int multiprocessors = 132, threads_per_block = 1024, warp_size = 32;
constexpr int l2_bytes = 50 << 20, default_shared = 48 * 1024;

struct ErrorText {
  cudaError_t error;
  const char *name, *text;
};
constexpr ErrorText texts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"}};

const ErrorText& text_of(cudaError_t error) {
  for (const ErrorText& t : texts)
    if (t.error == error) return t;
  return texts[std::size(texts) - 1];
}

}  // namespace

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
  return error;
}

cudaError_t device_status(int device) {
  if (config().devices == 0) return cudaErrorNoDevice;
  return device < 0 || device >= config().devices ? cudaErrorInvalidDevice : cudaSuccess;
}

std::string last_failure() {
  const char* text = queues().last_failure();
  return text ? text : "";
}

void reset() {
  queues().reset();
  memory().reset();
  last_error = cudaSuccess;
  current_device() = 0;
}

}  // namespace bdlm::emu

using namespace bdlm::emu;

const char* cudaGetErrorName(cudaError_t error) { return text_of(error).name; }

const char* cudaGetErrorString(cudaError_t error) {
  const char* report = error == cudaErrorLaunchFailure ? queues().last_failure() : nullptr;
  return report ? report : text_of(error).text;
}

cudaError_t cudaPeekAtLastError() {
  const cudaError_t failed = queues().status(current_device());
  return failed ? failed : last_error;
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  last_error = cudaSuccess;
  return error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = config().devices ? CUDART_VERSION : 0;
  return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = config().devices;
  return result(*count ? cudaSuccess : cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = device_status(device)) return result(error);
  current_device() = device;
  return result(queues().status(device));
}

cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t error = device_status(0)) return result(error);
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (const cudaError_t error = device_status(device)) return result(error);
  *p = cudaDeviceProp{};
  std::snprintf(p->name, sizeof p->name, "Emulated device of compute capability %d.%d",
                config().compute / 10, config().compute % 10);
  p->totalGlobalMem = config().memory;
  p->sharedMemPerBlock = default_shared;
  p->sharedMemPerBlockOptin = config().most_shared();
  p->major = config().compute / 10;
  p->minor = config().compute % 10;
  p->multiProcessorCount = multiprocessors;
  p->warpSize = warp_size;
  p->maxThreadsPerBlock = threads_per_block;
  p->l2CacheSize = l2_bytes;
  p->pciBusID = device + 1;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (const cudaError_t error = device_status(device)) return result(error);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock:
      *value = threads_per_block;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *value = default_shared;
      break;
    case cudaDevAttrWarpSize:
      *value = warp_size;
      break;
    case cudaDevAttrMultiProcessorCount:
      *value = multiprocessors;
      break;
    case cudaDevAttrL2CacheSize:
      *value = l2_bytes;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *value = config().compute / 10;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *value = config().compute % 10;
      break;
    case cudaDevAttrManagedMemory:
      *value = 1;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = int(config().most_shared());
      break;
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      break;
    default:
      return result(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  if (const cudaError_t error = device_status(device)) return result(error);
  const int written = std::snprintf(text, std::size_t(length), "0000:%02x:00.0", device + 1);
  return result(written < length ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (const cudaError_t error = device_status(0)) return result(error);
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = device_status(current_device())) return result(error);
  const cudaError_t status = queues().finish_device(current_device());
  collect_if_idle();
  return result(status ? status : queues().status(current_device()));
}
