// SPDX-License-Identifier: Apache-2.0
// Part of ptx.cuh: instructions of sm_90 and sm_90a. Other processors' builds contain them without
// a body where the assembler would refuse them.
#pragma once

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define PTX_WGMMA_OK 1
#else
#define PTX_WGMMA_OK 0
#endif

namespace bdlm::cuda::ptx {

// mbarrier
PTX_FN void mbarrier_init(uint64_t* b, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_u32(b)), "r"(count) : "memory");
}
PTX_FN void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
PTX_FN void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
PTX_FN void mbarrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_u32(b)) : "memory");
}
PTX_FN void mbarrier_arrive_expect_tx(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_u32(b)),
               "r"(bytes)
               : "memory");
}
PTX_FN bool mbarrier_test(uint64_t* b, uint32_t parity) {
  uint32_t ok;
  asm volatile(
      "{\n .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.u32 %0, 1, "
      "0, p;\n}"
      : "=r"(ok)
      : "r"(smem_u32(b)), "r"(parity)
      : "memory");
  return ok != 0;
}
PTX_FN void mbarrier_wait(uint64_t* b, uint32_t parity) {
  while (!mbarrier_test(b, parity)) {
  }
}
PTX_FN bool elect_one() {
  uint32_t ok;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(ok));
  return ok != 0;
}
template <int R>
PTX_FN void setmaxnreg_inc() {
#if PTX_WGMMA_OK
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(R));
#endif
}
template <int R>
PTX_FN void setmaxnreg_dec() {
#if PTX_WGMMA_OK
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(R));
#endif
}

// TMA
enum class Swizzle : int { none = 0, b128 = 1, b64 = 2, b32 = 3 };
using TensorMap = CUtensorMap;
PTX_FN void prefetch_tensormap(const TensorMap* m) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory");
}
PTX_FN void tma_load_2d(void* smem, const TensorMap* map, uint64_t* bar, int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3,%4}], [%2];" ::"r"(smem_u32(smem)),
      "l"(map), "r"(smem_u32(bar)), "r"(c0), "r"(c1)
      : "memory");
}
PTX_FN void tma_load_3d(void* smem, const TensorMap* map, uint64_t* bar, int c0, int c1, int c2) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3,%4,%5}], [%2];" ::"r"(smem_u32(smem)),
      "l"(map), "r"(smem_u32(bar)), "r"(c0), "r"(c1), "r"(c2)
      : "memory");
}
PTX_FN void tma_load_4d(void* smem, const TensorMap* map, uint64_t* bar, int c0, int c1, int c2,
                        int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3,%4,%5,%6}], [%2];" ::"r"(smem_u32(smem)),
      "l"(map), "r"(smem_u32(bar)), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// wgmma; the products are in wgmma.cuh
PTX_FN uint64_t make_wgmma_desc(const void* smem, uint32_t lbo_bytes, uint32_t sbo_bytes,
                                Swizzle s) {
  const uint32_t a = smem_u32(smem);
  return uint64_t((a & 0x3ffff) >> 4) | uint64_t((lbo_bytes & 0x3ffff) >> 4) << 16 |
         uint64_t((sbo_bytes & 0x3ffff) >> 4) << 32 | uint64_t(int(s)) << 62;
}
/// False in builds for other processors, whose kernels need no body then.
inline constexpr bool has_wgmma = PTX_WGMMA_OK;
PTX_FN void wgmma_fence() {
#if PTX_WGMMA_OK
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#else
  asm volatile("trap;");  // built for sm_90 without the a: fail loudly instead of computing nothing
#endif
}
PTX_FN void wgmma_commit() {
#if PTX_WGMMA_OK
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
template <int N>
PTX_FN void wgmma_wait() {
#if PTX_WGMMA_OK
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
#endif
}
/// After wgmma_wait: keeps the compiler from using a product's registers before this point, or for
/// something else before it. No instruction.
template <int N>
PTX_FN void wgmma_pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
template <int N>
PTX_FN void wgmma_pin(uint32_t (&a)[N][4]) {
#pragma unroll
  for (int i = 0; i < 4 * N; ++i) asm volatile("" : "+r"(a[i / 4][i % 4])::"memory");
}

}  // namespace bdlm::cuda::ptx

#include "kernels/cuda/wgmma.cuh"
#undef PTX_WGMMA_OK
