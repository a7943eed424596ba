// SPDX-License-Identifier: Apache-2.0
// Two streams, an event, two device buffers and a pinned one.
#pragma once

#include "kernels/cuda/platform.cuh"
#include "tests/kernels/emu/modes.h"

namespace bdlm::emu {

__global__ inline void fill(float* x, float value) { x[threadIdx.x] = value; }
__global__ inline void add_to(float* x, const float* y) { x[threadIdx.x] += y[threadIdx.x]; }
__global__ inline void trap_if(const float* x, float value) {
  if (x[0] == value) __trap();
}

struct TwoStreams {
  static constexpr std::size_t bytes = 32 * sizeof(float);
  cudaStream_t first, second;
  cudaEvent_t event;
  float *x, *y, *host;
  TwoStreams() {
    REQUIRE(cudaStreamCreateWithFlags(&first, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&x), bytes) == cudaSuccess);
    REQUIRE(cudaMalloc(reinterpret_cast<void**>(&y), bytes) == cudaSuccess);
    REQUIRE(cudaMallocHost(reinterpret_cast<void**>(&host), bytes) == cudaSuccess);
  }
  ~TwoStreams() {
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    cudaEventDestroy(event);
  }
  void fill_x(cudaStream_t stream, float value) {
    emu::launch("fill", fill, 1, 32, 0, stream, x, value);
  }
  void fetch(const float* from, cudaStream_t stream) {
    CHECK(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream) == cudaSuccess);
  }
};

/// In how many of the modes f returns true.
template <class F>
int modes_where(F&& f) {
  int count = 0;
  in_all_modes([&] { count += f() ? 1 : 0; });
  return count;
}

}  // namespace bdlm::emu
