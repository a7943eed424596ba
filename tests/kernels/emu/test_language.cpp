// SPDX-License-Identifier: Apache-2.0
// What kernels can say: built-ins, warp collectives, barriers, atomics, intrinsics.
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "kernels/cuda/platform.cuh"
#include "tests/kernels/emu/modes.h"

using namespace bdlm;
using emu::in_all_modes;

namespace {

__global__ void write_indices(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] += int(block * 100 + thread);
}

__global__ void half_warps(int* out) {  // two collectives of one warp at a time
  int v = int(threadIdx.x);
  const unsigned mask = threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u;
  if (threadIdx.x < 16) {
    for (int i = 8; i; i >>= 1) v += __shfl_down_sync(mask, v, unsigned(i), 16);
  } else {
    for (int i = 8; i; i >>= 1) v += __shfl_xor_sync(mask, v, i, 16);
  }
  if (threadIdx.x % 16 == 0) out[threadIdx.x / 16] = v;
}

__global__ void shuffle_all(double* wide, float* narrow) {
  const unsigned all = 0xffffffffu;
  wide[threadIdx.x] = __shfl_sync(all, threadIdx.x + 0.5, int(threadIdx.x + 1));
  const int up = __shfl_up_sync(all, int(threadIdx.x), 4);
  const long long low = __shfl_sync(all, (1ll << 40) + threadIdx.x, 3, 8);
  narrow[threadIdx.x] = float(up) + float(low >> 40) * 1000 + float(low & 31) * 100;
}

__global__ void votes(unsigned* out) {
  const unsigned all = 0xffffffffu;
  const unsigned ballot = __ballot_sync(all, threadIdx.x % 3 == 0);
  const int any = __any_sync(all, threadIdx.x == 5), every = __all_sync(all, threadIdx.x < 31);
  const unsigned same = __match_any_sync(all, threadIdx.x & 1);
  const unsigned sum = __reduce_add_sync(all, threadIdx.x);
  const int least = __reduce_min_sync(all, int(threadIdx.x) - 7);
  const int odd = __syncthreads_count(threadIdx.x & 1);
  const int again = __syncthreads_and(threadIdx.x < 32) + 2 * __syncthreads_or(threadIdx.x > 99);
  if (threadIdx.x != 1) return;
  const unsigned values[] = {ballot, unsigned(any),   unsigned(every), same,
                             sum,    unsigned(least), unsigned(odd),   unsigned(again)};
  for (int i = 0; i < 8; ++i) out[i] = values[i];
}

__global__ void leave_early(int* out) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
  atomicAdd(out, 1);
}

__global__ void sum_blocks(float* partial, unsigned* count, float* out, unsigned blocks) {
  __shared__ bool last;
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = float(blockIdx.x + 1);
    __threadfence();
    last = atomicInc(count, blocks - 1) == blocks - 1;
  }
  __syncthreads();
  if (!last || threadIdx.x) return;
  float sum = 0;
  for (unsigned i = 0; i < blocks; ++i) sum += partial[i];
  *out = sum;
}

__global__ void hand_over(int* flag, int* out) {  // one warp polls for what another writes
  if (threadIdx.x == 0) {
    while (atomicAdd(flag, 0) == 0) __nanosleep(20);
    *out = atomicAdd(flag, 0);
  } else if (threadIdx.x == 40) {
    atomicExch(flag, 3);
  }
}

__global__ void row_norms(const float* x, float* y, int cols) {
  CU_DYNAMIC_SHARED(float, warp_sums);
  const float* row = x + blockIdx.x * unsigned(cols);
  float sum = 0;
  for (int c = int(threadIdx.x); c < cols; c += int(blockDim.x)) sum += row[c] * row[c];
  for (int i = 16; i; i >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, i);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = sum;
  __syncthreads();
  float total = 0;
  for (unsigned w = 0; w < blockDim.x / 32; ++w) total += warp_sums[w];
  if (threadIdx.x == 0) y[blockIdx.x] = rsqrtf(total);
}

}  // namespace

TEST_CASE("every thread of a three-dimensional grid runs once") {
  in_all_modes([] {
    std::vector<int> out(24 * 30);
    emu::launch("write_indices", write_indices, dim3(4, 3, 2), dim3(5, 3, 2), 0, nullptr,
                out.data());
    for (int b = 0; b < 24; ++b)
      for (int t = 0; t < 30; ++t) REQUIRE(out[std::size_t(b * 30 + t)] == b * 100 + t);
  });
}

TEST_CASE("shuffles move values of four and eight bytes within their width") {
  in_all_modes([] {
    int halves[2] = {};
    emu::launch("half_warps", half_warps, 1, 32, 0, nullptr, halves);
    CHECK(halves[0] == 120);
    CHECK(halves[1] == 376);
    double wide[32];
    float narrow[32];
    emu::launch("shuffle_all", shuffle_all, 1, 32, 0, nullptr, wide, narrow);
    for (int i = 0; i < 32; ++i) {
      CHECK(wide[i] == (i + 1) % 32 + 0.5);
      CHECK(narrow[i] == float((i < 4 ? i : i - 4) + 1000 + (i / 8 * 8 + 3) * 100));
    }
  });
}

TEST_CASE("votes and integer reductions") {
  in_all_modes([] {
    unsigned out[8] = {};
    emu::launch("votes", votes, 1, 32, 0, nullptr, out);
    const unsigned expected[8] = {0x49249249u, 1, 0, 0xaaaaaaaau, 496, unsigned(-7), 16, 1};
    for (int i = 0; i < 8; ++i) CHECK(out[i] == expected[i]);
  });
}

TEST_CASE("threads that exited no longer count at __syncthreads") {
  int count = 0;
  emu::launch("leave_early", leave_early, 1, 64, 0, nullptr, &count);
  CHECK(count == 32);
}

TEST_CASE("the last of many blocks sees what the others wrote") {
  const emu::Restore restore;
  for (const int workers : {1, 3}) {
    emu::config().workers = workers;
    std::vector<float> partial(100);
    unsigned count = 0;
    float sum = 0;
    emu::launch("sum_blocks", sum_blocks, 100, 32, 0, nullptr, partial.data(), &count, &sum, 100u);
    CHECK(sum == 5050);
  }
}

TEST_CASE("a polling thread lets others run") {
  in_all_modes([] {
    int flag = 0, out = 0;
    emu::launch("hand_over", hand_over, 1, 64, 0, nullptr, &flag, &out);
    CHECK(out == 3);
  });
}

TEST_CASE("a reduction over warps and shared memory") {
  in_all_modes([] {
    std::vector<float> x(3 * 77), y(3);
    std::iota(x.begin(), x.end(), 1.0f);
    emu::launch("row_norms", row_norms, 3, 128, 4 * sizeof(float), nullptr, x.data(), y.data(), 77);
    for (std::size_t r = 0; r < 3; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < 77; ++c) sum += double(x[r * 77 + c]) * x[r * 77 + c];
      CHECK(y[r] == Approx(1 / std::sqrt(sum)).epsilon(1e-5));
    }
  });
}

TEST_CASE("intrinsics") {
  CHECK(__umulhi(0xffffffffu, 0x10000u) == 0xffffu);
  CHECK(__umul64hi(~0ull, 1ull << 60) == (1ull << 60) - 1);
  CHECK(__brev(1u) == 0x80000000u);
  CHECK(__clz(1) == 31);
  CHECK(__ffs(8) == 4);
  CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x7610u) == 0x77661100u);
  CHECK(__hiloint2double(__double2hiint(-1.25), __double2loint(-1.25)) == -1.25);
  CHECK(__float_as_uint(1.0f) == 0x3f800000u);
  CHECK(rsqrt(4.0) == 0.5);
  CHECK(std::is_same_v<decltype(exp(1.0f)), float>);
  unsigned u = 5;
  CHECK(atomicCAS(&u, 5u, 9u) == 5);
  CHECK(atomicMax(&u, 20u) == 9);
  CHECK(u == 20);
}
