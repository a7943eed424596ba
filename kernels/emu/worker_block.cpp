// SPDX-License-Identifier: Apache-2.0
// Memory of a worker and the state in which a block starts.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "kernels/emu/worker.h"

namespace bdlm::emu {
namespace {

constexpr std::size_t page = 4096;
constexpr std::size_t guard = 65536;  // on either side of shared memory

char* map(std::size_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw Error("emulation: no memory for the stacks of a block");
  return static_cast<char*>(p);
}

}  // namespace

void Stats::add(const Stats& o) {
  switches += o.switches;
  collectives += o.collectives;
  barriers += o.barriers;
  mma += o.mma;
  wgmma += o.wgmma;
  ldmatrix += o.ldmatrix;
  ldmatrix_conflicts += o.ldmatrix_conflicts;
  cp_async += o.cp_async;
  tma_bytes += o.tma_bytes;
  blocks += o.blocks;
  threads += o.threads;
}

Worker::~Worker() {
  if (stacks_) munmap(stacks_, stacks_bytes_);
  if (!shared_map_) return;
  allow(shared_map_, shared_capacity_ + 2 * guard);
  munmap(shared_map_, shared_capacity_ + 2 * guard);
}

void Worker::map_stacks(std::uint32_t count) {
  if (fibers.size() >= count && stack_bytes_ == mode.stack_bytes) return;
  if (stacks_) munmap(stacks_, stacks_bytes_);
  count = std::max<std::uint32_t>(count, 256);
  fibers = std::vector<Fiber>(count);
  warps = std::vector<Warp>((count + 31) / 32);
  stack_bytes_ = mode.stack_bytes;
  // Two pages of slack for reset_fibers and a guard page: an odd number of pages, because stacks at
  // multiples of 64 KiB would all fall into the same cache sets.
  stack_stride_ = (stack_bytes_ + page - 1) / page * page + 3 * page;
  stacks_bytes_ = stack_stride_ * count;
  stacks_ = map(stacks_bytes_);
  for (std::uint32_t i = 0; i < count; ++i) {
    mprotect(stacks_ + i * stack_stride_, page, PROT_NONE);
    fibers[i].stack = stacks_ + i * stack_stride_ + page;
  }
}

void Worker::map_shared(std::size_t bytes) {
  if (!shared_map_ || shared_capacity_ < bytes) {
    if (shared_map_) {
      allow(shared_map_, shared_capacity_ + 2 * guard);
      munmap(shared_map_, shared_capacity_ + 2 * guard);
    }
    shared_capacity_ = (std::max(bytes, guard) + guard - 1) / guard * guard;
    shared_map_ = map(shared_capacity_ + 2 * guard);
    mprotect(shared_map_, guard, PROT_NONE);
    mprotect(shared_map_ + guard + shared_capacity_, guard, PROT_NONE);
  }
  // As near the guard behind it as a base at a multiple of 1024, for TMA and wgmma, allows.
  char* begin = shared_map_ + guard;
  char* end = begin + shared_capacity_;
  shared = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(end) - bytes) &
                                   ~std::uintptr_t(1023));
  forbid(begin, shared_capacity_);
  allow(shared, bytes);
}

void Worker::prepare_sanitizers([[maybe_unused]] std::uint32_t count) {
#if BDLM_EMU_TSAN
  // Kept for the life of the process: to destroy one that stands in IgnoreRaces is an error.
  while (sanitizer_fibers_.size() < count) {
    sanitizer_fibers_.push_back(__tsan_create_fiber(0));
    char name[32];
    std::snprintf(name, sizeof name, "cuda thread %zu", sanitizer_fibers_.size() - 1);
    __tsan_set_fiber_name(sanitizer_fibers_.back(), name);
  }
  for (std::uint32_t i = 0; i < count; ++i) fibers[i].sanitizer_fiber = sanitizer_fibers_[i];
  if (!engine_fiber_) {
    engine_fiber_ = __tsan_create_fiber(0);
    __tsan_set_fiber_name(engine_fiber_, "async copy engine");
  }
#endif
}

void Worker::start_grid(const Grid& g) {
  grid = g;
  mode = config();
  threads = g.block.x * g.block.y * g.block.z;
  map_stacks(threads);
  map_shared(g.shared);
  prepare_sanitizers(threads);
  stats = Stats{};
  blockDim = g.block;
  gridDim = g.grid;
}

void Worker::finish_grid() { emu::acquire(&ends_); }

void Worker::reset_block(std::uint64_t index) {
  alive = threads;
  ready_warps_ = 0;
  polling_ = idle_rounds_ = 0;
  progress = polled_progress_ = 0;
  failed_ = false;
  current = nullptr;
  votes_ = 0;
  bulk.clear();
  for (WarpGroup& g : groups) {
    g.issuing = g.waiting = 0;
    g.work.clear();
  }
  for (Barrier& b : barriers_) {
    b.arrived = 0;
    b.waiting.clear();
  }
  const std::uint64_t layer = std::uint64_t(grid.grid.x) * grid.grid.y;
  blockIdx = uint3{unsigned(index % grid.grid.x), unsigned(index / grid.grid.x % grid.grid.y),
                   unsigned(index / layer)};
  random_state_ = (mode.seed * 0x9E3779B97F4A7C15ull + index * 2) | 1;
  if (mode.poison_shared) std::memset(shared, 0xff, grid.shared);
#if BDLM_EMU_TSAN
  if (mode.cross_block_races) AnnotateNewMemory("", 0, shared, grid.shared);
#endif
  const std::uint32_t warp_count = (threads + 31) / 32;
  for (std::uint32_t w = 0; w < warp_count; ++w) {
    Warp& warp = warps[w];
    const std::uint32_t lanes = std::min(32u, threads - w * 32);
    warp.exists = lanes == 32 ? 0xffffffffu : (1u << lanes) - 1;
    warp.exited = ~warp.exists;
    warp.ready = 0;
    for (; warp.open; warp.open &= warp.open - 1) warp.slot[__builtin_ctz(warp.open)].arrived = 0;
  }
  reset_fibers();
  ++stats.blocks;
  stats.threads += threads;
}

void Worker::reset_fibers() {
  std::uint32_t i = 0;
  for (unsigned z = 0; z < grid.block.z; ++z)
    for (unsigned y = 0; y < grid.block.y; ++y)
      for (unsigned x = 0; x < grid.block.x; ++x, ++i) {
        Fiber& f = fibers[i];
        f.index = uint3{x, y, z};
        f.linear = i;
        f.copies.clear();
        if (!f.started) {
          make_context(f.context, f.stack, stack_bytes_ + i % 16 * 192, &Worker::fiber_loop);
          f.started = true;
        }
        make_ready(i);
      }
}

}  // namespace bdlm::emu
