// SPDX-License-Identifier: Apache-2.0
// CUDA's qualifiers, as nothing or as the nearest thing in C++, and its built-in variables.
#pragma once

#include "kernels/emu/sanitizers.h"
#include "kernels/emu/vector_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__ inline
#define __managed__
#define __launch_bounds__(...)
#define __grid_constant__
#define __forceinline__ inline
#define __align__(n) alignas(n)
// A block runs on one host thread, so a variable of that thread is the block's. Plain statics get
// AddressSanitizer's red zones and thread-local ones do not: there one host thread runs all blocks.
#if BDLM_EMU_ASAN
#define __shared__ static
#else
#define __shared__ static thread_local
#endif

// Rewritten at every switch of fibers; a fiber never changes its host thread.
inline constinit thread_local uint3 threadIdx{0, 0, 0};
inline constinit thread_local uint3 blockIdx{0, 0, 0};
inline constinit thread_local dim3 blockDim{1, 1, 1};
inline constinit thread_local dim3 gridDim{1, 1, 1};
inline constexpr int warpSize = 32;
