// SPDX-License-Identifier: Apache-2.0
// Queries, other threads, host functions, failures and the life of streams and events.

#include <atomic>
#include <thread>

#include "tests/kernels/emu/two_streams.h"

using namespace bdlm;
using Catch::Matchers::Contains;
using emu::add_to, emu::fill, emu::trap_if;
using emu::in_all_modes;
using emu::TwoStreams;

TEST_CASE("queries come to an end and do not wait") {
  in_all_modes([] {
    TwoStreams f;
    f.fill_x(f.first, 6);
    cudaEventRecord(f.event, f.first);
    const cudaError_t at_once = cudaEventQuery(f.event);
    if (emu::config().streams == emu::Streams::lazy) CHECK(at_once == cudaErrorNotReady);
    int queries = 0;
    while (cudaEventQuery(f.event) == cudaErrorNotReady) REQUIRE(++queries < 1000);
    CHECK(f.x[0] == 6);
    f.fill_x(f.second, 7);
    while (cudaStreamQuery(f.second) == cudaErrorNotReady) REQUIRE(++queries < 1000);
    CHECK(f.x[0] == 7);
    CHECK(cudaGetLastError() == cudaSuccess);
  });
}

TEST_CASE("other threads may query and wait") {
  in_all_modes([] {
    TwoStreams f;
    f.fill_x(f.first, 1);
    for (int i = 0; i < 20; ++i) emu::launch("add_to", add_to, 1, 32, 0, f.first, f.x, f.x);
    cudaEventRecord(f.event, f.first);
    std::atomic<int> wrong{0};
    std::thread watcher([&] {
      while (cudaEventQuery(f.event) == cudaErrorNotReady) std::this_thread::yield();
      wrong += f.x[0] != float(1 << 20);
    });
    std::thread waiter([&] { wrong += cudaEventSynchronize(f.event) != cudaSuccess; });
    CHECK(cudaStreamSynchronize(f.first) == cudaSuccess);
    watcher.join();
    waiter.join();
    CHECK(wrong == 0);
  });
}

TEST_CASE("host functions run in their place and may not use the runtime") {
  in_all_modes([] {
    TwoStreams f;
    struct Seen {
      const float* x;
      float value;
      cudaError_t status;
    } seen{f.x, 0, cudaSuccess};
    f.fill_x(f.first, 1);
    cudaLaunchHostFunc(
        f.first,
        [](void* p) {
          auto* s = static_cast<Seen*>(p);
          s->value = s->x[0];
          s->status = cudaDeviceSynchronize();
        },
        &seen);
    f.fill_x(f.first, 2);
    CHECK(cudaDeviceSynchronize() == cudaSuccess);
    CHECK(seen.value == 1);
    CHECK(seen.status == cudaErrorNotPermitted);
  });
}

TEST_CASE("a failing kernel surfaces at a synchronisation and stays") {
  in_all_modes([] {
    TwoStreams f;
    f.fill_x(f.first, 3);
    emu::launch("trap_if", trap_if, 1, 32, 0, f.first, f.x, 3.0f);
    f.fill_x(f.first, 4);
    CHECK(cudaStreamSynchronize(f.first) == cudaErrorLaunchFailure);
    CHECK_THAT(emu::last_failure(), Contains("kernel trap_if: block (0,0,0)"));
    CHECK_THAT(cudaGetErrorString(cudaErrorLaunchFailure), Contains("__trap()"));
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    void* p = nullptr;
    CHECK(cudaMalloc(&p, 8) == cudaErrorLaunchFailure);
    CHECK(cudaMemsetAsync(f.x, 0, 4, f.first) == cudaErrorLaunchFailure);
    CHECK(cudaEventRecord(f.event, f.first) == cudaErrorLaunchFailure);
    CHECK(emu::launch("fill", fill, 1, 32, 0, f.first, f.x, 1.0f) == cudaErrorLaunchFailure);
    emu::reset();
    CHECK(emu::last_failure().empty());
    CHECK(cudaMalloc(&p, 8) == cudaSuccess);
  });
}

TEST_CASE("destroyed streams finish and cannot be used") {
  in_all_modes([] {
    TwoStreams f;
    cudaStream_t third;
    cudaStreamCreateWithPriority(&third, cudaStreamNonBlocking, -1);
    f.fill_x(third, 6);
    cudaEventRecord(f.event, third);
    CHECK(cudaStreamDestroy(third) == cudaSuccess);
    CHECK(cudaStreamSynchronize(third) == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(cudaEventSynchronize(f.event) == cudaSuccess);
    CHECK(f.x[0] == 6);
  });
}

TEST_CASE("elapsed time") {
  const emu::Restore restore;
  TwoStreams f;
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorInvalidResourceHandle);
  cudaEventRecord(begin, f.first);
  f.fill_x(f.first, 1);
  cudaEventRecord(end, f.first);
  CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaErrorNotReady);
  cudaStreamSynchronize(f.first);
  CHECK(cudaEventElapsedTime(&ms, begin, end) == cudaSuccess);
  CHECK(ms > 0);
  CHECK(cudaEventElapsedTime(&ms, begin, f.event) == cudaErrorInvalidResourceHandle);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
}
