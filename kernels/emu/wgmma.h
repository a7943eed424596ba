// SPDX-License-Identifier: Apache-2.0
// wgmma (Hopper's warp group products): 128 threads together, operands in shared memory behind
// descriptors. Lazy: a product is computed when its group is waited for, and only then touches the
// accumulators; eager: at issue.
#pragma once

#include <cstdint>

#include "kernels/emu/async_copy.h"
#include "kernels/emu/report.h"
#include "kernels/emu/shared_memory.h"

namespace bdlm::emu {
struct WgmmaShape {
  int n;
  bool a_shared, a_mn_major, b_mn_major;
};
void issue_wgmma(const WgmmaOperands& operands, const WgmmaShape& shape, Location at);
void commit_wgmma();
void wait_wgmma(int most_pending, Location at);
void run(const Wgmma& product);
}  // namespace bdlm::emu

namespace bdlm::cuda::ptx {

inline std::uint64_t make_wgmma_desc(const void* smem, std::uint32_t lbo_bytes,
                                     std::uint32_t sbo_bytes, emu::Swizzle s) {
  const std::uint32_t start = emu::shared_address(smem, "wgmma descriptor");
  return std::uint64_t(start >> 4 & 0x3fff) | std::uint64_t(lbo_bytes >> 4 & 0x3fff) << 16 |
         std::uint64_t(sbo_bytes >> 4 & 0x3fff) << 32 | std::uint64_t(int(s)) << 62;
}

inline constexpr bool has_wgmma = true;
inline void wgmma_fence() {}
/// Keeps nvcc from moving the use of registers across a wait; there is nothing to keep here.
template <class Registers>
void wgmma_pin(Registers&) {}
inline void wgmma_commit() { emu::commit_wgmma(); }
/// At most N groups of the warp group stay pending.
template <int N>
void wgmma_wait(emu::Location at = emu::Location::current()) {
  emu::wait_wgmma(N, at);
}

/// d (64 x N) = or += a (64 x 16) * b (16 x N), both in shared memory.
template <int N, bool AMnMajor = false, bool BMnMajor = false>
void wgmma_m64k16_ss(float (&d)[N / 2], std::uint64_t da, std::uint64_t db, bool accumulate,
                     emu::Location at = emu::Location::current()) {
  emu::issue_wgmma({{}, da, db, d, accumulate}, {N, true, AMnMajor, BMnMajor}, at);
}
/// The same with a in registers.
template <int N, bool BMnMajor = false>
void wgmma_m64k16_rs(float (&d)[N / 2], const std::uint32_t (&a)[4], std::uint64_t db,
                     bool accumulate, emu::Location at = emu::Location::current()) {
  emu::issue_wgmma({{a[0], a[1], a[2], a[3]}, 0, db, d, accumulate}, {N, false, false, BMnMajor},
                   at);
}

}  // namespace bdlm::cuda::ptx
