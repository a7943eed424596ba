// SPDX-License-Identifier: Apache-2.0
// Tensor-core instructions against plain loops; operands are small integers, so results are exact.
#include <random>
#include <vector>

#include "kernels/cuda/platform.cuh"
#include "tests/kernels/emu/modes.h"

using namespace bdlm;
namespace ptx = bdlm::cuda::ptx;
using emu::in_all_modes;

namespace {

std::vector<bfloat16> integers(std::size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<bfloat16> v(count);
  for (bfloat16& x : v) x = bfloat16(float(int(generator() % 9) - 4));
  return v;
}

/// a [m][k] times b [n][k] transposed
std::vector<float> product(const std::vector<bfloat16>& a, const std::vector<bfloat16>& b, int m,
                           int n, int k) {
  std::vector<float> c(std::size_t(m * n));
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j)
      for (int l = 0; l < k; ++l)
        c[std::size_t(i * n + j)] +=
            float(a[std::size_t(i * k + l)]) * float(b[std::size_t(j * k + l)]);
  return c;
}

/// d [16][8] = a [16][16] * b [8][16] transposed, operands by cp.async and ldmatrix
__global__ void one_mma(const bfloat16* a, const bfloat16* b, float* d) {
  CU_DYNAMIC_SHARED(bfloat16, s);
  const int lane = int(threadIdx.x);
  bfloat16 *sa = s, *sb = s + 256;
  ptx::cp_async<16>(sa + lane * 8, a + lane * 8);
  if (lane < 16) ptx::cp_async_zfill<16>(sb + lane * 8, b + lane * 8, true);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncwarp();
  std::uint32_t fa[4], fb[2];
  ptx::ldmatrix_x4(fa, sa + lane % 16 * 16 + lane / 16 * 8);
  ptx::ldmatrix_x2(fb, sb + lane % 8 * 16 + lane / 8 % 2 * 8);
  float c[4] = {1, 2, 3, 4};
  ptx::mma_m16n8k16_bf16(c, fa, fb, c);
  for (int i = 0; i < 4; ++i)
    d[(lane / 4 + i / 2 * 8) * 8 + 2 * (lane % 4) + i % 2] = c[i] - float(i + 1);
}

__global__ void transpose(const bfloat16* x, bfloat16* y) {  // 8x8
  CU_DYNAMIC_SHARED(bfloat16, s);
  for (int i = 0; i < 2; ++i) s[threadIdx.x * 2 + i] = x[threadIdx.x * 2 + i];
  __syncwarp();
  std::uint32_t r[1];
  ptx::ldmatrix_x1_trans(r, s + threadIdx.x % 8 * 8);
  y[threadIdx.x * 2].bits = std::uint16_t(r[0]);
  y[threadIdx.x * 2 + 1].bits = std::uint16_t(r[0] >> 16);
}

/// d [64][N] = a [64][16] (registers) * b [N][16] transposed (shared, swizzle `Code`)
template <int N, int Code>
__global__ void wgmma_rs(const bfloat16* a, const bfloat16* b, float* d) {
  CU_DYNAMIC_SHARED(unsigned char, s);
  constexpr auto swizzle = ptx::Swizzle(Code);
  constexpr int width = Code == 1 ? 64 : Code == 2 ? 32 : Code == 3 ? 16 : 8;
  const int t = int(threadIdx.x), lane = t & 31;
  for (int e = t; e < N * 16; e += 128) {
    const int n = e / 16, k = e % 16;
    std::uint32_t at;
    if (Code == 0) {
      at = std::uint32_t(n / 8 * 128 + n % 8 * 16 + k / 8 * (N * 16) + k % 8 * 2);
    } else {
      at = std::uint32_t(n * width * 2 + k * 2);
      at ^= (at >> 7 & (Code == 1 ? 7 : Code == 2 ? 3 : 1)) << 4;
    }
    *reinterpret_cast<bfloat16*>(s + at) = b[e];
  }
  const int row = t / 32 * 16 + lane / 4, col = 2 * (lane % 4);
  std::uint32_t fa[4];
  for (int i = 0; i < 4; ++i) {
    const bfloat16* p = a + (row + 8 * (i & 1)) * 16 + col + 8 * (i >> 1);
    fa[i] = std::uint32_t(p[0].bits) | std::uint32_t(p[1].bits) << 16;
  }
  ptx::fence_proxy_async();
  __syncthreads();
  float acc[N / 2] = {};
  const std::uint64_t descriptor = Code == 0 ? ptx::make_wgmma_desc(s, N * 16, 128, swizzle)
                                             : ptx::make_wgmma_desc(s, 16, 8 * width * 2, swizzle);
  ptx::wgmma_fence();
  ptx::wgmma_m64k16_rs<N>(acc, fa, descriptor, false);
  ptx::wgmma_m64k16_rs<N>(acc, fa, descriptor, true);
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>();
  for (int i = 0; i < N / 2; ++i)
    d[(row + (i >> 1 & 1) * 8) * N + (i >> 2) * 8 + col + (i & 1)] = acc[i] / 2;
}

/// d [64][64] = a [64][k] * b, both from shared memory behind TMA; b is [64][k] or, BMn, [k][64]
template <bool BMn>
__global__ void wgmma_tma(const __grid_constant__ ptx::TensorMap a,
                          const __grid_constant__ ptx::TensorMap b, float* d, int k) {
  CU_DYNAMIC_SHARED(unsigned char, s);
  constexpr int tile = 64 * 64 * 2;
  auto* full = reinterpret_cast<std::uint64_t*>(s + 4 * tile);
  const int t = int(threadIdx.x), steps = (k + 63) / 64;
  if (t == 0) {
    ptx::mbarrier_init(full, 1);
    ptx::mbarrier_init(full + 1, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  const auto fetch = [&](int step) {
    unsigned char* stage = s + step % 2 * 2 * tile;
    ptx::mbarrier_arrive_expect_tx(full + step % 2, 2 * tile);
    ptx::tma_load_2d(stage, &a, full + step % 2, step * 64, 0);
    ptx::tma_load_2d(stage + tile, &b, full + step % 2, BMn ? 0 : step * 64, BMn ? step * 64 : 0);
  };
  if (t == 0) fetch(0);
  float acc[32] = {};
  for (int step = 0; step < steps; ++step) {
    if (t == 0 && step + 1 < steps) fetch(step + 1);
    ptx::mbarrier_wait(full + step % 2, std::uint32_t(step / 2 & 1));
    const unsigned char* stage = s + step % 2 * 2 * tile;
    ptx::wgmma_fence();
    for (int part = 0; part < 4; ++part) {
      const auto da = ptx::make_wgmma_desc(stage + part * 32, 16, 1024, ptx::Swizzle::b128);
      const auto db = ptx::make_wgmma_desc(stage + tile + part * (BMn ? 2048 : 32), BMn ? 8192 : 16,
                                           1024, ptx::Swizzle::b128);
      ptx::wgmma_m64k16_ss<64, false, BMn>(acc, da, db, step + part > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    __syncthreads();  // the stage may be filled again
  }
  const int row = t / 32 * 16 + (t & 31) / 4, col = 2 * (t % 4);
  for (int i = 0; i < 32; ++i)
    d[(row + (i >> 1 & 1) * 8) * 64 + (i >> 2) * 8 + col + (i & 1)] = acc[i];
}

ptx::TensorMap map_of(const bfloat16* data, int rows, int cols) {
  ptx::TensorMap m;
  m.base = data;
  m.rank = 2;
  m.swz = ptx::Swizzle::b128;
  m.dim[0] = std::uint64_t(cols);
  m.dim[1] = std::uint64_t(rows);
  m.stride[1] = std::uint64_t(cols) * 2;
  m.box[0] = m.box[1] = 64;
  return m;
}

template <int N, int Code>
void check_rs() {
  INFO("n " << N << " swizzle " << Code);
  const auto a = integers(64 * 16, 1), b = integers(N * 16, 2);
  std::vector<float> d(64 * N);
  emu::launch("wgmma_rs", wgmma_rs<N, Code>, 1, 128, N * 128, nullptr, a.data(), b.data(),
              d.data());
  CHECK(d == product(a, b, 64, N, 16));
}

}  // namespace

TEST_CASE("mma.sync on operands from ldmatrix and cp.async") {
  in_all_modes([] {
    const auto a = integers(256, 1), b = integers(128, 2);
    std::vector<float> d(128);
    emu::launch("one_mma", one_mma, 1, 32, 1024, nullptr, a.data(), b.data(), d.data());
    CHECK(d == product(a, b, 16, 8, 16));
    CHECK(emu::last_stats().mma == 1);
  });
}

TEST_CASE("ldmatrix transposes") {
  const auto x = integers(64, 3);
  std::vector<bfloat16> y(64);
  emu::launch("transpose", transpose, 1, 32, 128, nullptr, x.data(), y.data());
  for (std::size_t i = 0; i < 64; ++i) CHECK(y[i].bits == x[i % 8 * 8 + i / 8].bits);
}

TEST_CASE("wgmma with a in registers under every swizzle") {
  in_all_modes([] {
    check_rs<64, 0>();
    check_rs<64, 1>();
    check_rs<64, 2>();
    check_rs<64, 3>();
    check_rs<128, 1>();
    check_rs<256, 1>();
    check_rs<16, 1>();
  });
}

TEST_CASE("wgmma from shared memory filled by TMA") {
  in_all_modes([] {
    const int k = 200;  // the last tile is ragged: TMA fills it with zeros
    const auto a = integers(64 * k, 1), b = integers(64 * k, 2);
    std::vector<bfloat16> columns(b.size());
    for (std::size_t n = 0; n < 64; ++n)
      for (std::size_t i = 0; i < k; ++i) columns[i * 64 + n] = b[n * k + i];
    std::vector<float> d(64 * 64);
    const std::size_t shared = 4 * 64 * 64 * 2 + 16;
    emu::launch("wgmma_tma", wgmma_tma<false>, 1, 128, shared, nullptr, map_of(a.data(), 64, k),
                map_of(b.data(), 64, k), d.data(), k);
    CHECK(d == product(a, b, 64, 64, k));
    std::fill(d.begin(), d.end(), 0.0f);
    emu::launch("wgmma_tma", wgmma_tma<true>, 1, 128, shared, nullptr, map_of(a.data(), 64, k),
                map_of(columns.data(), k, 64), d.data(), k);
    CHECK(d == product(a, b, 64, 64, k));
  });
}

TEST_CASE("instructions of Hopper are refused on an older device") {
  const emu::Restore restore;
  emu::config().compute = 80;
  const auto a = integers(64 * 16, 1), b = integers(64 * 16, 2);
  std::vector<float> d(64 * 64);
  const std::string text = emu::report_of([&] {
    emu::launch("wgmma_rs", wgmma_rs<64, 1>, 1, 128, 8192, nullptr, a.data(), b.data(), d.data());
  });
  CHECK_THAT(text, Catch::Matchers::Contains("compute capability 9.0"));
}
