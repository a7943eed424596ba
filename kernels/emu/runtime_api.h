// SPDX-License-Identifier: Apache-2.0
// The part of the CUDA runtime that the backend uses, with the toolkit's names, numbers and
// signatures, on the emulated machine. What a stream is given runs later, when a synchronisation
// needs it (Config::streams), so a missing wait, a buffer reused or read too early and memory freed
// too early show in tests: fresh and freed memory is filled with 0xff bytes. Work on the null
// stream is done before the call returns, after all that blocking streams were given.
// Wrong use inside a kernel, and copies outside of what was allocated, become
// cudaErrorLaunchFailure at a synchronising call and stay, as in CUDA, until emu::reset().
#pragma once

#include <cstddef>
#include <string>

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorLaunchFailure = 719,
  cudaErrorNotPermitted = 800,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4
};
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrManagedMemory = 83,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrMemoryPoolsSupported = 115
};

/// The fields in use; the toolkit's has many more.
struct cudaDeviceProp {
  char name[256];
  std::size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock, l2CacheSize;
  int pciDomainID, pciBusID, pciDeviceID;
};

using cudaStream_t = struct CUstream_st*;
using cudaEvent_t = struct CUevent_st*;
using cudaHostFn_t = void (*)(void*);

inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1;
inline constexpr unsigned cudaEventDefault = 0, cudaEventBlockingSync = 1,
                          cudaEventDisableTiming = 2;
inline constexpr unsigned cudaHostAllocDefault = 0, cudaHostAllocPortable = 1,
                          cudaHostAllocMapped = 2;
inline constexpr unsigned cudaMemAttachGlobal = 1;
inline constexpr int CUDART_VERSION = 13000;

const char* cudaGetErrorName(cudaError_t error);
/// For cudaErrorLaunchFailure the emulation's own report, when there is one.
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaDeviceSynchronize();

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total);
cudaError_t cudaMalloc(void** data, std::size_t bytes);
cudaError_t cudaMallocManaged(void** data, std::size_t bytes, unsigned flags = cudaMemAttachGlobal);
/// Does not wait for queued work, which CUDA does not promise either.
cudaError_t cudaFree(void* data);
cudaError_t cudaMallocAsync(void** data, std::size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* data, cudaStream_t stream);
cudaError_t cudaMallocHost(void** data, std::size_t bytes);
cudaError_t cudaHostAlloc(void** data, std::size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* data);

/// As documented for the toolkit: host memory not from cudaMallocHost is read before the call
/// returns, and a copy into it is complete when the call returns.
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemsetAsync(void* data, int value, std::size_t bytes,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemset2DAsync(void* data, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* data, int value, std::size_t bytes);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
/// A query that finds work undone does some now and then, so that a loop of queries ends.
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* argument);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end);

namespace bdlm::emu {

/// The report behind the last cudaErrorLaunchFailure; empty when there was none.
std::string last_failure();
/// As if the process had just started: forgets failures, queued work and allocations. Streams,
/// events and memory of before are invalid. Not while another thread uses the runtime.
void reset();

}  // namespace bdlm::emu
