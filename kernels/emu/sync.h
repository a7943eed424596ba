// SPDX-License-Identifier: Apache-2.0
// Barriers, fences and waiting, by CUDA's names.
#pragma once

#include "kernels/emu/report.h"

namespace bdlm::emu {
int lane();
unsigned active_lanes();
void sync_threads(Location at);
int sync_threads_count(bool predicate, Location at);
void sync_warp(unsigned mask, Location at);
void fence();
void nanosleep(Location at);
}  // namespace bdlm::emu

inline void __syncthreads(bdlm::emu::Location at = bdlm::emu::Location::current()) {
  bdlm::emu::sync_threads(at);
}
inline int __syncthreads_count(int predicate,
                               bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::sync_threads_count(predicate != 0, at);
}
inline int __syncthreads_or(int predicate,
                            bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::sync_threads_count(predicate != 0, at) > 0;
}
inline int __syncthreads_and(int predicate,
                             bdlm::emu::Location at = bdlm::emu::Location::current()) {
  return bdlm::emu::sync_threads_count(predicate == 0, at) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu,
                       bdlm::emu::Location at = bdlm::emu::Location::current()) {
  bdlm::emu::sync_warp(mask, at);
}

inline void __threadfence() { bdlm::emu::fence(); }
inline void __threadfence_block() {}
inline void __threadfence_system() { bdlm::emu::fence(); }

/// In a polling loop this is where other threads get to run; a loop without it never ends here.
inline void __nanosleep(unsigned, bdlm::emu::Location at = bdlm::emu::Location::current()) {
  bdlm::emu::nanosleep(at);
}
[[noreturn]] inline void __trap() { bdlm::emu::fail("__trap()"); }
inline unsigned __activemask() { return bdlm::emu::active_lanes(); }
