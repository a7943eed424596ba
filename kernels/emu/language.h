// SPDX-License-Identifier: Apache-2.0
// CUDA's language for a host compiler: what a kernel file sees instead of nvcc's built-ins. Kernels
// run on the CPU, each CUDA thread as a fiber (worker.h). Link kernels/emu/*.cpp.
#pragma once

#ifdef __CUDACC__
#error "the emulation is for host compilers"
#endif

#include <cassert>
#include <cstdio>

#include "kernels/emu/atomics.h"
#include "kernels/emu/builtins.h"
#include "kernels/emu/config.h"
#include "kernels/emu/intrinsics.h"
#include "kernels/emu/launch.h"
#include "kernels/emu/ptx.h"
#include "kernels/emu/shared_memory.h"
#include "kernels/emu/sync.h"
#include "kernels/emu/warp.h"

#define CU_INLINE inline
#define CU_HOST_DEVICE inline
#define CU_DYNAMIC_SHARED(T, name) T* name = reinterpret_cast<T*>(::bdlm::emu::dynamic_shared())
