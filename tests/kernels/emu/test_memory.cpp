// SPDX-License-Identifier: Apache-2.0
// Memory and devices of the emulated runtime.
#include <cstring>
#include <vector>

#include "kernels/cuda/platform.cuh"
#include "tests/kernels/emu/modes.h"

using namespace bdlm;
using Catch::Matchers::Contains;
using emu::in_all_modes;

namespace {

__global__ void fill(unsigned char* x, int value) {
  x[threadIdx.x] = static_cast<unsigned char>(value);
}

unsigned char* device_bytes(std::size_t bytes) {
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, bytes) == cudaSuccess);
  return static_cast<unsigned char*>(p);
}

}  // namespace

TEST_CASE("the device has as much memory as is said") {
  const emu::Restore restore;
  emu::config().memory = 1000;
  std::size_t free = 0, total = 0;
  void *a = nullptr, *b = nullptr;
  CHECK(cudaMalloc(&a, 600) == cudaSuccess);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 256 == 0);
  CHECK(cudaMemGetInfo(&free, &total) == cudaSuccess);
  CHECK(free == 400);
  CHECK(total == 1000);
  CHECK(cudaMalloc(&b, 401) == cudaErrorMemoryAllocation);
  CHECK(b == nullptr);
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
  CHECK(cudaGetLastError() == cudaSuccess);
  CHECK(cudaMallocHost(&b, 5000) == cudaSuccess);
  CHECK(cudaMallocAsync(&b, 400, nullptr) == cudaSuccess);
  CHECK(cudaMalloc(&b, 1) == cudaErrorMemoryAllocation);
  CHECK(cudaFree(a) == cudaSuccess);
  CHECK(cudaFree(a) == cudaErrorInvalidValue);
  CHECK(cudaFree(nullptr) == cudaSuccess);
  CHECK(cudaMalloc(&b, 600) == cudaSuccess);
}

TEST_CASE("fresh memory is poisoned") {
  const emu::Restore restore;
  const unsigned char* x = device_bytes(100);
  for (int i = 0; i < 100; ++i) CHECK(x[i] == 0xff);
}

#if !BDLM_EMU_ASAN  // which reports the access itself
TEST_CASE("memory freed while queued work uses it is noticed") {
  const emu::Restore restore;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  unsigned char* x = device_bytes(32);
  emu::launch("fill", fill, 1, 32, 0, stream, x, 1);
  CHECK(cudaFree(x) == cudaSuccess);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK_THAT(emu::last_failure(), Contains("block of 32 bytes was written after it was freed"));
}

TEST_CASE("writes past the end of a block are noticed") {
  const emu::Restore restore;
  unsigned char* x = device_bytes(31);
  emu::launch("fill", fill, 1, 32, 0, nullptr, x, 1);
  CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
  CHECK_THAT(emu::last_failure(), Contains("block of 31 bytes was written past its end"));
}

TEST_CASE("freed memory is poisoned and not given out while work is queued") {
  const emu::Restore restore;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  unsigned char *x = device_bytes(64), *y = device_bytes(64);
  std::memset(x, 1, 64);
  cudaMemsetAsync(y, 0, 64, stream);
  CHECK(cudaFree(x) == cudaSuccess);
  for (int i = 0; i < 64; ++i) CHECK(x[i] == 0xff);
  for (int i = 0; i < 50; ++i) CHECK(device_bytes(64) != x);
}
#endif

TEST_CASE("a copy from memory freed before its turn fails") {
  const emu::Restore restore;
  cudaStream_t stream;
  cudaStreamCreate(&stream);
  unsigned char *x = device_bytes(64), *y = device_bytes(64);
  CHECK(cudaMemcpyAsync(y, x, 64, cudaMemcpyDefault, stream) == cudaSuccess);
  cudaFree(x);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure);
  CHECK_THAT(emu::last_failure(), Contains("a copy of 64 bytes uses memory that was freed"));
}

TEST_CASE("memory is allocated and freed in the order of a stream") {
  in_all_modes([] {
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    void* p = nullptr;
    std::size_t before = 0, after = 0, total = 0;
    cudaMemGetInfo(&before, &total);
    CHECK(cudaMallocAsync(&p, 32, stream) == cudaSuccess);
    emu::launch("fill", fill, 1, 32, 0, stream, static_cast<unsigned char*>(p), 3);
    unsigned char seen[32];
    CHECK(cudaMemcpyAsync(seen, p, 32, cudaMemcpyDefault, stream) == cudaSuccess);
    CHECK(seen[9] == 3);
    CHECK(cudaFreeAsync(p, stream) == cudaSuccess);
    CHECK(cudaFreeAsync(p, stream) == cudaErrorInvalidValue);
    cudaMemGetInfo(&after, &total);
    CHECK(before == after);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
  });
}

TEST_CASE("copies of two dimensions leave the padding alone") {
  in_all_modes([] {
    unsigned char *x = device_bytes(3 * 10), *y = device_bytes(3 * 16);
    cudaMemset(x, 7, 30);
    cudaStream_t stream;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    CHECK(cudaMemset2DAsync(x, 10, 1, 4, 3, stream) == cudaSuccess);
    CHECK(cudaMemcpy2DAsync(y, 16, x, 10, 6, 3, cudaMemcpyDeviceToDevice, stream) == cudaSuccess);
    std::vector<unsigned char> seen(12, 9);
    CHECK(cudaMemcpy2DAsync(seen.data(), 4, y, 16, 3, 3, cudaMemcpyDeviceToHost, stream) == 0);
    CHECK(seen == std::vector<unsigned char>{1, 1, 1, 9, 1, 1, 1, 9, 1, 1, 1, 9});
    for (int r = 0; r < 3; ++r) {
      CHECK(y[16 * r + 5] == 7);
      CHECK(y[16 * r + 6] == 0xff);
    }
    const std::vector<unsigned char> rows{1, 2, 0, 3, 4, 0};
    CHECK(cudaMemcpy2DAsync(y, 16, rows.data(), 3, 2, 2, cudaMemcpyHostToDevice, stream) == 0);
    CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
    CHECK(y[17] == 4);
    CHECK(y[2] == 1);
  });
}

TEST_CASE("copies outside of what was allocated and of the wrong kind are refused") {
  const emu::Restore restore;
  unsigned char* x = device_bytes(64);
  unsigned char host[128] = {};
  const auto copy = [&](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  };
  CHECK(copy(x, host, 64, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(copy(x, host, 65, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(x + 1, host, 64, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host, x, 64, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(host, host + 64, 64, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(host, nullptr, 64, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(host, x, 0, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(cudaMemsetAsync(host, 0, 4, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaMemset(x, 1, 65) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("devices are as many and of the kind that is said") {
  const emu::Restore restore;
  int count = -1, device = -1, value = 0;
  emu::config().devices = 0;
  CHECK(cudaGetDeviceCount(&count) == cudaErrorNoDevice);
  CHECK(count == 0);
  CHECK(cudaSetDevice(0) == cudaErrorNoDevice);
  void* p = nullptr;
  CHECK(cudaMalloc(&p, 8) == cudaErrorNoDevice);
  emu::config().devices = 2;
  emu::config().compute = 80;
  emu::config().memory = 1 << 20;
  CHECK(cudaGetDeviceCount(&count) == cudaSuccess);
  CHECK(count == 2);
  CHECK(cudaSetDevice(2) == cudaErrorInvalidDevice);
  CHECK(cudaSetDevice(1) == cudaSuccess);
  CHECK(cudaGetDevice(&device) == cudaSuccess);
  CHECK(device == 1);
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 1) == cudaSuccess);
  CHECK(properties.major == 8);
  CHECK(properties.totalGlobalMem == 1 << 20);
  CHECK(properties.sharedMemPerBlockOptin == 163 * 1024);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0) == cudaSuccess);
  CHECK(value == properties.multiProcessorCount);
  CHECK(cudaMalloc(&p, 1 << 20) == cudaSuccess);  // each device has its own
  CHECK(cudaSetDevice(0) == cudaSuccess);
  CHECK(cudaMalloc(&p, 1 << 20) == cudaSuccess);
}
