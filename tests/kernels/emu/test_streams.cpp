// SPDX-License-Identifier: Apache-2.0
// The order of work in streams: what is promised holds in every mode, what is not promised fails in
// some.

#include "kernels/emu/queues.h"
#include "tests/kernels/emu/two_streams.h"

using namespace bdlm;
using emu::add_to, emu::fill;
using emu::in_all_modes;
using emu::modes_where;
using emu::TwoStreams;

TEST_CASE("operations of a stream run in order with arguments of the call") {
  in_all_modes([] {
    TwoStreams f;
    for (float value = 1; value < 5; ++value) f.fill_x(f.first, value);
    CHECK(cudaMemcpyAsync(f.y, f.x, f.bytes, cudaMemcpyDeviceToDevice, f.first) == cudaSuccess);
    emu::launch("add_to", add_to, 1, 32, 0, f.first, f.y, f.x);
    f.fill_x(f.first, 100);
    f.fetch(f.y, f.first);
    CHECK(cudaStreamSynchronize(f.first) == cudaSuccess);
    CHECK(f.host[31] == 8);
  });
}

TEST_CASE("an event orders two streams and its absence is noticed") {
  const auto run = [](bool wait) {
    return modes_where([wait] {
      TwoStreams f;
      f.fill_x(f.first, 3);
      cudaEventRecord(f.event, f.first);
      if (wait) cudaStreamWaitEvent(f.second, f.event, 0);
      f.fetch(f.x, f.second);
      cudaStreamSynchronize(f.second);
      return f.host[5] != 3;
    });
  };
  CHECK(run(true) == 0);
  CHECK(run(false) > 0);
}

TEST_CASE("work that waits for another process holds back its own stream only") {
  in_all_modes([] {
    TwoStreams f;
    bool answered = false;
    int asked = 0;
    f.fill_x(f.first, 1);
    const auto waits = [&] {
      ++asked;
      return answered ? emu::Progress::done : emu::Progress::waits;
    };
    CHECK(emu::queues().push(f.first, waits) == cudaSuccess);
    f.fill_x(f.first, 7);
    f.fetch(f.x, f.second);  // not ordered after the other stream: sees 1, or nothing yet
    CHECK(cudaStreamSynchronize(f.second) == cudaSuccess);
    CHECK(f.host[3] != 7);
    while (emu::queues().advance()) {
    }
    CHECK(asked > 0);
    CHECK(cudaStreamQuery(f.first) == cudaErrorNotReady);
    answered = true;
    CHECK(cudaStreamSynchronize(f.first) == cudaSuccess);
    f.fetch(f.x, f.second);
    CHECK(cudaStreamSynchronize(f.second) == cudaSuccess);
    CHECK(f.host[3] == 7);
  });
}

TEST_CASE("a wait is for what was recorded before it") {
  in_all_modes([] {
    TwoStreams f;
    CHECK(cudaStreamWaitEvent(f.second, f.event, 0) == cudaSuccess);  // not recorded: no wait
    f.fill_x(f.first, 1);
    cudaEventRecord(f.event, f.first);
    cudaStreamWaitEvent(f.second, f.event, 0);
    emu::launch("add_to", add_to, 1, 32, 0, f.second, f.x, f.x);
    cudaEventRecord(f.event, f.second);
    cudaStreamWaitEvent(f.first, f.event, 0);
    emu::launch("add_to", add_to, 1, 32, 0, f.first, f.x, f.x);
    f.fetch(f.x, f.first);
    cudaEventRecord(f.event, f.first);
    cudaEventDestroy(f.event);  // what was recorded lives on
    CHECK(cudaStreamSynchronize(f.first) == cudaSuccess);
    CHECK(f.host[0] == 4);
    cudaEventCreate(&f.event);
  });
}

TEST_CASE("a host that reads or reuses pinned memory too early is noticed") {
  CHECK(modes_where([] {
          TwoStreams f;
          for (int i = 0; i < 32; ++i) f.host[i] = 2;
          cudaMemcpyAsync(f.x, f.host, f.bytes, cudaMemcpyHostToDevice, f.first);
          for (int i = 0; i < 32; ++i) f.host[i] = 9;  // too early
          float seen[32];
          CHECK(cudaMemcpyAsync(seen, f.x, f.bytes, cudaMemcpyDeviceToHost, f.first) == 0);
          return seen[0] != 2;
        }) > 0);
  CHECK(modes_where([] {
          TwoStreams f;
          for (int i = 0; i < 32; ++i) f.host[i] = 5;
          f.fill_x(f.first, 5);
          f.fetch(f.x, f.first);
          return f.host[0] != 5;  // too early, although the old value was the right one
        }) > 0);
}

TEST_CASE("pageable memory may be reused at once") {
  in_all_modes([] {
    TwoStreams f;
    float local[32] = {7}, seen[32];
    cudaMemcpyAsync(f.x, local, f.bytes, cudaMemcpyHostToDevice, f.first);
    local[0] = 0;
    cudaMemcpyAsync(seen, f.x, f.bytes, cudaMemcpyDeviceToHost, f.first);
    CHECK(seen[0] == 7);
  });
}

TEST_CASE("the null stream waits for blocking streams only") {
  const emu::Restore restore;
  TwoStreams f;
  cudaStream_t blocking;
  cudaStreamCreate(&blocking);
  f.fill_x(blocking, 4);
  emu::launch("fill", fill, 1, 32, 0, f.first, f.y, 5.0f);
  emu::launch("add_to", add_to, 1, 32, 0, nullptr, f.x, f.x);
  CHECK(f.x[0] == 8);
  CHECK(f.y[0] != 5);
  CHECK(cudaDeviceSynchronize() == cudaSuccess);
  CHECK(f.y[0] == 5);
  cudaStreamDestroy(blocking);
}
