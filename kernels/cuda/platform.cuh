// SPDX-License-Identifier: Apache-2.0
// First include of every kernel file (.cu): CUDA under nvcc, the emulation (kernels/emu) under a
// host compiler. The same source is built both ways; docs/kernels.md has the rules that this needs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/runtime.h"
#include "kernels/cuda/view.h"

#ifdef BDLM_EMU
#include "kernels/emu/language.h"
#else
#define CU_INLINE __device__ __forceinline__
#define CU_HOST_DEVICE __host__ __device__ __forceinline__
// Dynamic shared memory: one raw symbol a translation unit, aligned for TMA and wgmma.
#define CU_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(1024) unsigned char dynamic_shared_[]; \
  T* name = reinterpret_cast<T*>(dynamic_shared_)
#include "kernels/cuda/ptx.cuh"
#endif

namespace bdlm::cuda {

struct Launch {
  dim3 grid, block;
  std::size_t shared = 0;  // bytes of dynamic shared memory
  Stream stream = nullptr;
};

/// Enqueues a kernel; arguments convert to its parameters as in a call. The only way to launch.
template <class... P, class... A>
void launch(const char* name, void (*kernel)(P...), const Launch& l, A&&... args) {
  if (l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0) return;
#ifdef BDLM_EMU
  check_cuda(emu::launch(name, kernel, l.grid, l.block, l.shared, l.stream,
                         static_cast<A&&>(args)...),
             name);
#else
  if (l.shared > 48 * 1024)
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(l.shared)),
               name);
  cudaLaunchConfig_t config = {};
  config.gridDim = l.grid;
  config.blockDim = l.block;
  config.dynamicSmemBytes = l.shared;
  config.stream = l.stream;
  check_cuda(cudaLaunchKernelEx(&config, kernel, P(args)...), name);
#endif
}

template <class T>
CU_HOST_DEVICE constexpr T ceil_div(T a, T b) {
  return (a + b - 1) / b;
}

// bfloat16 in kernels: stored as bits, computed in float.
CU_INLINE float load(float x) { return x; }
CU_INLINE double load(double x) { return x; }
CU_INLINE float load(bfloat16 x) { return __uint_as_float(static_cast<std::uint32_t>(x.bits) << 16); }
CU_INLINE void store(float& to, float x) { to = x; }
CU_INLINE void store(float& to, double x) { to = static_cast<float>(x); }
CU_INLINE void store(double& to, double x) { to = x; }
CU_INLINE void store(bfloat16& to, float x) { to.bits = ptx::cvt_bf16(x); }
CU_INLINE void store(bfloat16& to, double x) { to.bits = ptx::cvt_bf16(static_cast<float>(x)); }

}  // namespace bdlm::cuda
