// SPDX-License-Identifier: Apache-2.0
// What the lanes of a warp do together.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/emu/worker.h"
#include "kernels/emu/worker_switch.h"

namespace bdlm::emu {

[[noreturn]] void fail_mask(const Warp& warp, std::uint32_t mask, std::uint32_t lane,
                            Collective kind, const Location& at);
[[noreturn]] void fail_divergence(const OpenCollective& open, std::uint32_t mask,
                                  std::uint32_t lane, Collective kind, const Location& at);
void check_no_overlap(const Warp& warp, std::uint32_t mask, Collective kind, const Location& at);

/// Every lane of `mask` passes its own argument record, which lies on its suspended stack; the last
/// to arrive runs `execute`, if any, for all. orders_memory: for ThreadSanitizer, only __syncwarp
/// does. Fails when lanes meet in different collectives, masks or source positions, or cannot meet.
/// Inline for the reason given in worker_switch.h.
[[gnu::always_inline]] inline void collective(std::uint32_t mask, Collective kind, void* arguments,
                                              void (*execute)(void* const* arguments,
                                                              std::uint32_t mask),
                                              Location at, bool orders_memory = false) {
  const IgnoreRaces ignore;
  Worker& w = *worker;
  const Fiber& self = *w.current;
  Warp& warp = w.warps[self.warp()];
  const std::uint32_t lane = self.lane();
  if (!(mask >> lane & 1) || (mask & warp.exited)) fail_mask(warp, mask, lane, kind, at);
  ++w.stats.collectives;
  const int lowest = std::countr_zero(mask);
  OpenCollective& c = warp.slot[lowest];
  if (!(warp.open >> lowest & 1)) {
    if (warp.open) check_no_overlap(warp, mask, kind, at);
    warp.open |= 1u << lowest;
    c.mask = mask;
    c.kind = kind;
    c.at = at;
  } else if (c.mask != mask || c.kind != kind || (w.mode.strict_sites && !same(c.at, at))) {
    fail_divergence(c, mask, lane, kind, at);
  }
  c.arguments[lane] = arguments;
  c.arrived |= 1u << lane;
  if (orders_memory) emu::release(&c);
  if (c.arrived == mask) {
    c.arrived = 0;
    warp.open &= ~(1u << lowest);
    ++w.progress;
    if (execute) execute(c.arguments, mask);
    w.make_ready_lanes(self.warp(), mask & ~(1u << lane));
  } else {
    w.wait(name_of(kind), mask, at);
  }
  if (orders_memory) emu::acquire(&c);
}

}  // namespace bdlm::emu
