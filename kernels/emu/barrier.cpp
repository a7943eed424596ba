// SPDX-License-Identifier: Apache-2.0
// Block-wide and named barriers, and the end of a thread.
#include <bit>

#include "kernels/emu/worker.h"
#include "kernels/emu/worker_switch.h"

namespace bdlm::emu {

void Worker::open_barrier(Barrier& b, const Fiber* except) {
  for (const std::uint16_t t : b.waiting)
    if (!except || t != except->linear) make_ready(t);
  b.waiting.clear();
  b.arrived = 0;
  if (&b != barriers_) return;
  // Stays readable until the next barrier opens, by when every thread has read it.
  vote_result_ = votes_;
  votes_ = 0;
}

int Worker::block_vote(bool predicate, Location at) {
  votes_ += predicate;
  barrier(0, 0, "__syncthreads vote", at, true);
  return vote_result_;
}

void Worker::exit_fiber(Fiber& f) {
  f.state = State::exited;
  --alive;
  ++progress;
  Warp& warp = warps[f.warp()];
  warp.exited |= 1u << f.lane();
  for (std::uint32_t open = warp.open; open; open &= open - 1) {
    const OpenCollective& c = warp.slot[std::countr_zero(open)];
    if (c.mask >> f.lane() & 1)
      fail("thread %u exited although lanes %08x wait for it in %s (mask %08x) at %s:%u", f.linear,
           c.arrived, name_of(c.kind), c.mask, c.at.file, c.at.line);
  }
  // Since Volta exited threads no longer count for __syncthreads.
  Barrier& b = barriers_[0];
  if (b.arrived && alive && b.arrived >= alive) open_barrier(b, nullptr);
}

}  // namespace bdlm::emu
