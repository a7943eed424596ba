// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/collective.h"

namespace bdlm::emu {

void fail_mask(const Warp& warp, std::uint32_t mask, std::uint32_t lane, Collective kind,
               const Location& at) {
  if (!(mask >> lane & 1))
    fail("%s at %s:%u: calling lane %u is not in mask %08x", name_of(kind), at.file, at.line, lane,
         mask);
  fail("%s at %s:%u: mask %08x names lanes that exited or do not exist, %08x", name_of(kind),
       at.file, at.line, mask, mask & warp.exited);
}

void fail_divergence(const OpenCollective& open, std::uint32_t mask, std::uint32_t lane,
                     Collective kind, const Location& at) {
  fail(
      "divergent warp: lanes %08x wait in %s (mask %08x) at %s:%u, lane %u calls %s (mask %08x) at "
      "%s:%u",
      open.arrived, name_of(open.kind), open.mask, open.at.file, open.at.line, lane, name_of(kind),
      mask, at.file, at.line);
}

void check_no_overlap(const Warp& warp, std::uint32_t mask, Collective kind, const Location& at) {
  for (std::uint32_t slots = warp.open; slots; slots &= slots - 1) {
    const OpenCollective& o = warp.slot[std::countr_zero(slots)];
    if (o.mask & mask)
      fail("%s at %s:%u: mask %08x overlaps %s with mask %08x at %s:%u", name_of(kind), at.file,
           at.line, mask, name_of(o.kind), o.mask, o.at.file, o.at.line);
  }
}

}  // namespace bdlm::emu
