// SPDX-License-Identifier: Apache-2.0
// The PTX wrappers of kernels/cuda/ptx.cuh, same names and signatures: here addresses, conversions,
// cached access and named barriers; the rest in the headers that are included.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/bfloat16.h"
#include "kernels/emu/cp_async.h"
#include "kernels/emu/matrix.h"
#include "kernels/emu/mbarrier.h"
#include "kernels/emu/report.h"
#include "kernels/emu/shared_memory.h"
#include "kernels/emu/sync.h"
#include "kernels/emu/tma.h"
#include "kernels/emu/vector_types.h"
#include "kernels/emu/wgmma.h"

namespace bdlm::emu {
void named_barrier(const char* what, int id, int threads, bool wait, Location at);
}

namespace bdlm::cuda::ptx {

inline std::uint32_t smem_u32(const void* p) { return emu::shared_address(p, "smem_u32"); }

inline float ex2(float x) { return std::exp2(x); }
inline float lg2(float x) { return std::log2(x); }
inline float rcp(float x) { return 1.0f / x; }
inline std::uint16_t cvt_bf16(float x) { return bfloat16(x).bits; }
inline std::uint32_t pack_bf16(float lo, float hi) {
  return std::uint32_t(bfloat16(lo).bits) | std::uint32_t(bfloat16(hi).bits) << 16;
}

inline uint4 ld_nc_v4(const void* p) {
  return emu::load(static_cast<const uint4*>(p), "ld.global.nc.v4");
}
inline void st_cs_v4(void* p, uint4 v) { emu::store(static_cast<uint4*>(p), v, "st.global.cs.v4"); }

inline void bar_sync(int id, int threads, emu::Location at = emu::Location::current()) {
  emu::named_barrier("bar.sync", id, threads, true, at);
}
inline void bar_arrive(int id, int threads, emu::Location at = emu::Location::current()) {
  emu::named_barrier("bar.arrive", id, threads, false, at);
}

inline bool elect_one() { return emu::lane() == 0; }
template <int Registers>
void setmaxnreg_inc() {}
template <int Registers>
void setmaxnreg_dec() {}

}  // namespace bdlm::cuda::ptx
