// SPDX-License-Identifier: Apache-2.0
// mbarrier (Hopper's barriers in shared memory), 64 bits like the hardware's: bits 0-19 arrivals
// still to come, 20-39 arrivals a phase, 40-61 bytes still to land, 63 the phase.
#pragma once

#include <cstdint>

#include "kernels/emu/report.h"

namespace bdlm::emu {
/// A copy's bytes have landed.
void complete_bytes(std::uint64_t* barrier, std::uint32_t bytes);
void check_barrier(const std::uint64_t* barrier);
}  // namespace bdlm::emu

namespace bdlm::cuda::ptx {

void mbarrier_init(std::uint64_t* barrier, std::uint32_t count);
inline void fence_mbarrier_init() {}
inline void fence_proxy_async() {}
void mbarrier_arrive(std::uint64_t* barrier);
void mbarrier_arrive_expect_tx(std::uint64_t* barrier, std::uint32_t bytes);
/// Whether the phase of this parity has completed.
bool mbarrier_test(std::uint64_t* barrier, std::uint32_t parity);
void mbarrier_wait(std::uint64_t* barrier, std::uint32_t parity,
                   emu::Location at = emu::Location::current());

}  // namespace bdlm::cuda::ptx
