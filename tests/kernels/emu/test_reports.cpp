// SPDX-License-Identifier: Apache-2.0
// Wrong use is reported, with the kernel's name and the source position.
#include <stdexcept>

#include "kernels/cuda/platform.cuh"
#include "tests/kernels/emu/modes.h"

using namespace bdlm;
using bdlm::cuda::ptx::bar_sync;
namespace ptx = bdlm::cuda::ptx;
using Catch::Matchers::Contains;

namespace {

__global__ void different_barriers() {
  if (threadIdx.x != 3) {
    __syncthreads();
  } else {
    bar_sync(1, 64);
  }
}
__global__ void two_positions() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void not_in_mask() { __shfl_sync(0xfffffffeu, 1, 1); }
__global__ void exited_lane() {
  if (threadIdx.x == 7) return;
  __shfl_sync(0xffffffffu, 1, 1);
}
__global__ void source_outside() {
  if (threadIdx.x < 16) __shfl_sync(0xffffu, 1, 20);
}
__global__ void overlapping_masks() {
  if (threadIdx.x < 7) {  // these wait for lane 7
    __shfl_sync(0xffu, 1, 1);
  } else if (threadIdx.x < 16) {
    __shfl_sync(0xff80u, 1, 8);
  }
}
__global__ void skipped_lane() {
  if (threadIdx.x != 5) __shfl_xor_sync(0xffffffffu, 1, 1);
}
__global__ void barrier_hang() {
  CU_DYNAMIC_SHARED(std::uint64_t, b);
  if (threadIdx.x == 0) ptx::mbarrier_init(b, 2);
  __syncthreads();
  if (threadIdx.x == 1) ptx::mbarrier_arrive(b);
  ptx::mbarrier_wait(b, 0);
}
__global__ void poll_forever(int* flag) {
  while (atomicAdd(flag, 0) == 0) __nanosleep(100);
}
__global__ void misaligned(const float* x) {
  CU_DYNAMIC_SHARED(float, s);
  ptx::cp_async<16>(s, x + 1);
}
__global__ void misaligned_vector(const float4* x) { __ldg(x); }
__global__ void outside_shared() {
  CU_DYNAMIC_SHARED(unsigned char, s);
  std::uint32_t r[4];
  ptx::ldmatrix_x4(r, s + 16 * threadIdx.x);
}
__global__ void counts_differ() { ptx::bar_sync(2, threadIdx.x < 32 ? 64 : 96); }
__global__ void throws() { throw std::runtime_error("from inside"); }
__global__ void traps() {
  if (blockIdx.x == 2 && threadIdx.x == 9) __trap();
}
__global__ void nothing() {}

/// All reports name the kernel.
template <class... P, class... A>
std::string report(void (*kernel)(P...), dim3 grid, dim3 block, std::size_t shared, A... a) {
  const std::string text = emu::report_of(
      [&] { emu::launch("this_kernel", kernel, grid, block, shared, nullptr, a...); });
  CHECK_THAT(text, Contains("kernel this_kernel: "));
  return text;
}

}  // namespace

TEST_CASE("deadlocks name who waits where") {
  const std::string text = report(different_barriers, 1, 64, 0);
  CHECK_THAT(text, Contains("deadlock: 64 of 64 threads"));
  CHECK_THAT(text, Contains("threads 0-2,4-63: wait in __syncthreads at "));
  CHECK_THAT(text, Contains("threads 3: wait in bar.sync at ") && Contains("test_reports.cpp:"));
  CHECK_THAT(report(barrier_hang, 1, 64, 8), Contains("deadlock") && Contains("mbarrier wait"));
  int flag = 0;
  CHECK_THAT(report(poll_forever, 1, 1, 0, &flag), Contains("deadlock") && Contains("__nanosleep"));
}

TEST_CASE("divergence is reported") {
  CHECK_THAT(report(two_positions, 1, 64, 0), Contains("divergent __syncthreads"));
  CHECK_THAT(report(skipped_lane, 1, 32, 0), Contains("lanes") && Contains("exited"));
  CHECK_THAT(report(counts_differ, 1, 64, 0), Contains("different thread counts"));
}

TEST_CASE("wrong masks are reported") {
  CHECK_THAT(report(not_in_mask, 1, 32, 0), Contains("lane 0 is not in mask fffffffe"));
  CHECK_THAT(report(exited_lane, 1, 32, 0), Contains("exited"));
  CHECK_THAT(report(source_outside, 1, 32, 0), Contains("reads lane 20"));
  CHECK_THAT(report(overlapping_masks, 1, 32, 0), Contains("overlaps"));
}

TEST_CASE("wrong addresses are reported") {
  alignas(16) float x[8] = {};
  CHECK_THAT(report(misaligned, 1, 1, 16, x), Contains("cp.async source") && Contains("16-byte"));
  const auto* odd = reinterpret_cast<const float4*>(x + 1);
  CHECK_THAT(report(misaligned_vector, 1, 1, 0, odd), Contains("__ldg") && Contains("16-byte"));
  CHECK_THAT(report(outside_shared, 1, 32, 496),
             Contains("ldmatrix") && Contains("outside the 496"));
}

TEST_CASE("the report names block and thread") {
  CHECK_THAT(report(traps, 4, 32, 0), Contains("block (2,0,0) thread (9,0,0): __trap()"));
  CHECK_THAT(report(throws, 1, 1, 0), Contains("from inside"));
  CHECK(emu::report_of([] { emu::launch("nothing", nothing, 3, 64, 0, nullptr); }).empty());
}

TEST_CASE("launches beyond the limits are refused") {
  const emu::Restore restore;
  CHECK_THAT(report(nothing, 1, 1025, 0), Contains("1025 x 1 x 1 threads"));
  CHECK_THAT(report(nothing, 1, 0, 0), Contains("threads"));
  CHECK_THAT(report(nothing, dim3(1, 65536), 1, 0), Contains("65536 x 1 blocks"));
  CHECK_THAT(report(nothing, 1, 32, 228 * 1024), Contains("dynamic shared memory"));
  emu::config().compute = 80;
  CHECK_THAT(report(nothing, 1, 32, 164 * 1024), Contains("limit is 166912"));
  CHECK(
      emu::report_of([] { emu::launch("nothing", nothing, 1, 32, 163 * 1024, nullptr); }).empty());
}

TEST_CASE("values of the environment are checked") {
  setenv("BDLM_EMU_ORDER", "backwards", 1);
  CHECK_THROWS_WITH(emu::config_from_environment(), Contains("BDLM_EMU_ORDER=backwards"));
  setenv("BDLM_EMU_ORDER", "reverse", 1);
  setenv("BDLM_EMU_MEMORY", "1e9", 1);
  CHECK_THROWS_WITH(emu::config_from_environment(), Contains("BDLM_EMU_MEMORY=1e9"));
  setenv("BDLM_EMU_MEMORY", "123", 1);
  CHECK(emu::config_from_environment().memory == 123);
  CHECK(emu::config_from_environment().order == emu::Order::reverse);
  unsetenv("BDLM_EMU_ORDER");
  unsetenv("BDLM_EMU_MEMORY");
}
