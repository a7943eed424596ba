// SPDX-License-Identifier: Apache-2.0
// Which fiber runs next, and switching to it.
#include "kernels/emu/worker.h"

#include <bit>

#include "kernels/emu/tma.h"
#include "kernels/emu/worker_switch.h"

namespace bdlm::emu {
namespace {

// A thread may poll for what another wrote without any synchronisation that would be counted as
// progress: so often all threads of a block poll in vain before that is a deadlock.
constexpr std::uint32_t most_idle_rounds = 1000;

std::uint32_t choose_bit(std::uint32_t mask, Order order, Worker& w) {
  if (order == Order::forward) return std::uint32_t(std::countr_zero(mask));
  if (order == Order::reverse) return 31 - std::uint32_t(std::countl_zero(mask));
  auto skip = std::uint32_t(w.random() % std::uint32_t(std::popcount(mask)));
  while (skip--) mask &= mask - 1;
  return std::uint32_t(std::countr_zero(mask));
}

}  // namespace

std::uint64_t Worker::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_;
}

void Worker::make_ready(std::uint32_t linear) {
  warps[linear >> 5].ready |= 1u << (linear & 31);
  ready_warps_ |= 1u << (linear >> 5);
  fibers[linear].state = State::ready;
}

void Worker::make_ready_lanes(std::uint32_t warp, std::uint32_t lanes) {
  if (!lanes) return;
  warps[warp].ready |= lanes;
  ready_warps_ |= 1u << warp;
  for (std::uint32_t m = lanes; m; m &= m - 1)
    fibers[warp * 32 + std::uint32_t(std::countr_zero(m))].state = State::ready;
}

// Stays inside the current warp while it has ready lanes: one warp runs as far ahead of the others
// as barriers permit, which shows missing ones and is kind to the caches.
Fiber* Worker::pick() {
  for (;;) {
    if (ready_warps_) {
      const Order order = mode.order;
      const bool stay =
          current && order != Order::random && (ready_warps_ >> current->warp() & 1) != 0;
      const std::uint32_t w = stay ? current->warp() : choose_bit(ready_warps_, order, *this);
      Warp& warp = warps[w];
      const std::uint32_t lane = choose_bit(warp.ready, order, *this);
      warp.ready &= ~(1u << lane);
      if (!warp.ready) ready_warps_ &= ~(1u << w);
      return &fibers[w * 32 + lane];
    }
    if (!bulk.empty()) {
      land_bulk_copy();
      wake_pollers();
    } else if (polling_ && (progress != polled_progress_ || idle_rounds_ < most_idle_rounds)) {
      wake_pollers();
    } else {
      return nullptr;
    }
  }
}

void Worker::wake_pollers() {
  idle_rounds_ = progress == polled_progress_ ? idle_rounds_ + 1 : 0;
  polled_progress_ = progress;
  if (!polling_) return;
  for (std::uint32_t i = 0; i < threads; ++i)
    if (fibers[i].state == State::polls) make_ready(i);
  polling_ = 0;
}

void Worker::land_bulk_copy() {
  const std::size_t i = mode.async == Async::random ? random() % bulk.size() : 0;
  const BulkCopy copy = bulk[i];
  bulk.erase(bulk.begin() + std::ptrdiff_t(i));
  ++progress;
#if BDLM_EMU_TSAN
  void* back = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(engine_fiber_, __tsan_switch_to_fiber_no_sync);
  land(copy);
  __tsan_switch_to_fiber(back, __tsan_switch_to_fiber_no_sync);
#else
  land(copy);
#endif
}

void Worker::leave(Fiber& from) {
#if BDLM_EMU_TSAN
  __tsan_switch_to_fiber(outside_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
#if BDLM_EMU_ASAN
  void* fake_stack = nullptr;
  __sanitizer_start_switch_fiber(&fake_stack, outside_stack_, outside_stack_bytes_);
#endif
  switch_context(from.context, outside_);
#if BDLM_EMU_ASAN
  __sanitizer_finish_switch_fiber(fake_stack, nullptr, nullptr);
#endif
}

void Worker::poll(const char* what, Location at) {
  const IgnoreRaces ignore;
  current->state = State::polls;
  current->wait_what = what;
  current->wait_mask = 0;
  current->wait_at = at;
  ++polling_;
  suspend();
}

void Worker::abandon_deadlock() {
  set_failure(describe_deadlock());
  abandon();
}

void Worker::abandon() {
  failed_ = true;
  emu::release(&ends_);
  leave(*current);
  __builtin_unreachable();
}

void Worker::fiber_loop() {
#if BDLM_EMU_ASAN
  {
    const void* stack = nullptr;
    std::size_t bytes = 0;
    __sanitizer_finish_switch_fiber(nullptr, &stack, &bytes);
    if (!worker->outside_stack_) {
      worker->outside_stack_ = stack;
      worker->outside_stack_bytes_ = bytes;
    }
  }
#endif
  for (;;) {  // once a block
    Worker* w;
    Fiber* self;
    {
      const IgnoreRaces ignore;
      w = worker;
      self = w->current;
    }
    emu::acquire(&w->begins_);
    bool thrown = true;
    try {
      w->grid.body(w->grid.argument);
      thrown = false;
    } catch (const std::exception& e) {
      w->failure_ = e.what();
    } catch (...) {
      w->failure_ = "not a std::exception";
    }
    emu::release(&w->ends_);
    const IgnoreRaces ignore;
    if (thrown) fail("an exception left the kernel: %s", w->failure_.c_str());
    w->exit_fiber(*self);
    Fiber* next = w->alive ? w->pick() : nullptr;
    if (next) {
      w->enter(self->context, *next);
    } else if (w->alive) {
      w->abandon_deadlock();
    } else {
      w->leave(*self);
    }
  }
}

void Worker::run_block(std::uint64_t index) {
  const IgnoreRaces ignore;
  reset_block(index);
  emu::release(&begins_);
  Fiber* first = pick();
#if BDLM_EMU_TSAN
  outside_fiber_ = __tsan_get_current_fiber();
#endif
  enter(outside_, *first);
  // Without this acquire blocks stay unordered for ThreadSanitizer.
  if (!mode.cross_block_races || failed_) emu::acquire(&ends_);
  current = nullptr;
  if (!failed_) return;
  for (Fiber& f : fibers) {
    f.started = false;  // its stack is given up as it stands
    allow(f.stack, stack_stride_ - 4096);
  }
  sanitizer_fibers_.clear();  // abandoned inside the kernel: fresh identities next time
  throw Error(failure_);
}

}  // namespace bdlm::emu
