// SPDX-License-Identifier: Apache-2.0
// Giving way to another fiber. Inline up to the function that a kernel calls: each return after a
// switch that the processor cannot predict costs more than the switch.
#pragma once

#include "kernels/emu/worker.h"

namespace bdlm::emu {

inline void Worker::enter(Context& from, Fiber& to) {
  ++stats.switches;
  current = &to;
  threadIdx = to.index;
#if BDLM_EMU_TSAN
  __tsan_switch_to_fiber(to.sanitizer_fiber, __tsan_switch_to_fiber_no_sync);
#endif
#if BDLM_EMU_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, to.stack, stack_stride_ - 4096);
#endif
  switch_context(from, to.context);
#if BDLM_EMU_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

inline void Worker::suspend() {
  Fiber* self = current;
  emu::release(&ends_);  // in case the grid is abandoned here
  Fiber* next = pick();
  if (next == self) {
    threadIdx = self->index;
  } else if (next) {
    enter(self->context, *next);
  } else {
    abandon_deadlock();
  }
}

inline void Worker::wait(const char* what, std::uint32_t mask, Location at) {
  current->state = State::waits;
  current->wait_what = what;
  current->wait_mask = mask;
  current->wait_at = at;
  suspend();
}

/// Barrier 0 is __syncthreads and waits for all threads that have not exited.
inline void Worker::barrier(std::uint32_t id, std::uint32_t expected, const char* what, Location at,
                            bool wait_here) {
  Barrier& b = barriers_[id];
  const bool whole_block = id == 0;
  ++stats.barriers;
  if (b.arrived == 0) {
    b.at = at;
    b.expected = expected;
  } else if (!whole_block && b.expected != expected) {
    fail("%s at %s:%u: barrier %u used with different thread counts, %u and %u", what, at.file,
         at.line, id, b.expected, expected);
  } else if (whole_block && mode.strict_sites && !same(b.at, at)) {
    fail("divergent __syncthreads: some threads at %s:%u, thread %u at %s:%u", b.at.file, b.at.line,
         current->linear, at.file, at.line);
  }
  emu::release(&b);
  ++b.arrived;
  ++progress;
  if (b.arrived >= (whole_block ? alive : expected)) {
    open_barrier(b, current);
  } else if (wait_here) {
    b.waiting.push_back(std::uint16_t(current->linear));
    wait(what, 0, at);
  }
  if (wait_here) emu::acquire(&b);
}

}  // namespace bdlm::emu
