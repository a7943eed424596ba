// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/sync.h"

#include <atomic>

#include "kernels/emu/collective.h"
#include "kernels/emu/ptx.h"

namespace bdlm::emu {

int lane() { return int(worker->current->lane()); }

unsigned active_lanes() {
  const Warp& warp = worker->warps[worker->current->warp()];
  return ~warp.exited;
}

void sync_threads(Location at) {
  const IgnoreRaces ignore;
  worker->barrier(0, 0, "__syncthreads", at, true);
}

int sync_threads_count(bool predicate, Location at) {
  const IgnoreRaces ignore;
  return worker->block_vote(predicate, at);
}

void sync_warp(unsigned mask, Location at) {
  // Like the hardware, take the full mask in a last warp that is not full.
  mask &= worker->warps[worker->current->warp()].exists;
  collective(mask, Collective::syncwarp, nullptr, nullptr, at, true);
}

// ThreadSanitizer has no model of fences: every fence synchronises through one word with every
// later fence, as much as the hardware promises where a fence goes with a flag.
void fence() {
  static std::atomic<unsigned> word{0};
  word.fetch_add(1, std::memory_order_acq_rel);
}

void nanosleep(Location at) {
  if (worker->mode.workers > 1) ++worker->progress;  // the awaited block may run on another one
  worker->poll("__nanosleep", at);
}

void named_barrier(const char* what, int id, int threads, bool wait, Location at) {
  const IgnoreRaces ignore;
  if (id < 1 || id > 15 || threads <= 0 || threads % 32)
    fail("%s %d, %d at %s:%u: barriers are 1 to 15, threads whole warps", what, id, threads,
         at.file, at.line);
  worker->barrier(std::uint32_t(id), std::uint32_t(threads), what, at, wait);
}

}  // namespace bdlm::emu
