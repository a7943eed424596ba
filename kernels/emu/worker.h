// SPDX-License-Identifier: Apache-2.0
// The machine: a worker is a host thread that runs blocks, one after the other, each CUDA thread of
// a block as a fiber. Fibers give way only where they synchronise, so the order in which they run
// is chosen here, and none of them can run being the definition of a deadlock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "kernels/emu/async_copy.h"
#include "kernels/emu/builtins.h"
#include "kernels/emu/config.h"
#include "kernels/emu/context.h"
#include "kernels/emu/launch.h"
#include "kernels/emu/report.h"

namespace bdlm::emu {

enum class Collective : std::uint8_t { syncwarp, shuffle, vote, match, reduce, ldmatrix, mma };
inline const char* name_of(Collective c) {
  constexpr const char* names[] = {"__syncwarp",       "__shfl_sync",   "a warp vote",
                                   "__match_any_sync", "__reduce_sync", "ldmatrix",
                                   "mma.sync"};
  return names[std::size_t(c)];
}

enum class State : std::uint8_t { ready, waits, polls, exited };

struct Fiber {
  Context context;
  uint3 index{};
  std::uint32_t linear = 0;
  State state = State::exited;
  bool started = false;  // the context stands inside the fiber's loop
  std::uint32_t wait_mask = 0;
  const char* wait_what = "";
  Location wait_at;
  char* stack = nullptr;
  WorkGroups<ElementCopy> copies;
  void* sanitizer_fiber = nullptr;
  std::uint32_t lane() const { return linear & 31; }
  std::uint32_t warp() const { return linear >> 5; }
};

struct OpenCollective {
  std::uint32_t mask = 0, arrived = 0;
  Collective kind{};
  Location at;
  void* arguments[32];
};
struct Warp {
  std::uint32_t exists = 0, exited = 0, ready = 0;
  std::uint32_t open = 0;  // bit i: slot i, whose collective has i as its lowest lane, is in use
  OpenCollective slot[32];
};
struct Barrier {
  std::uint32_t arrived = 0, expected = 0;
  std::vector<std::uint16_t> waiting;
  Location at;
};
struct WarpGroup {
  std::uint32_t issuing = 0, waiting = 0;  // threads that stand at a wgmma, at a wait
  Location at;
  Wgmma next;
  WorkGroups<Wgmma> work;
};

class Worker {
 public:
  Worker() = default;
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  void start_grid(const Grid& grid);
  void run_block(std::uint64_t index);  // throws Error
  void finish_grid();

  // Called from fibers.
  [[gnu::always_inline]] void suspend();  // the running fiber's state is already set
  [[gnu::always_inline]] void wait(const char* what, std::uint32_t mask, Location at);
  void poll(const char* what, Location at);
  void make_ready(std::uint32_t linear);
  void make_ready_lanes(std::uint32_t warp, std::uint32_t lanes);
  [[gnu::always_inline]] void barrier(std::uint32_t id, std::uint32_t expected, const char* what,
                                      Location at, bool wait);
  void land_bulk_copy();
  int block_vote(bool predicate, Location at);  // how many threads of the block say so
  /// Gives the grid up. Objects on the fiber's stack are not destroyed: the text is set before.
  [[noreturn]] void abandon();
  void set_failure(std::string text) { failure_ = std::move(text); }
  std::uint64_t random();

  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  WarpGroup groups[8];
  std::vector<BulkCopy> bulk;  // not yet landed
  Config mode;                 // of the grid
  Grid grid{};
  Fiber* current = nullptr;
  std::uint32_t threads = 0, alive = 0;
  std::uint64_t progress = 0;  // counts whatever a polling thread may wait for
  char* shared = nullptr;      // dynamic shared memory
  Stats stats;

 private:
  static void fiber_loop();
  void map_stacks(std::uint32_t count);
  void map_shared(std::size_t bytes);
  void prepare_sanitizers(std::uint32_t count);
  void reset_block(std::uint64_t index);
  void reset_fibers();
  void exit_fiber(Fiber& f);
  void open_barrier(Barrier& b, const Fiber* except);
  Fiber* pick();
  void wake_pollers();
  [[gnu::always_inline]] void enter(Context& from, Fiber& to);
  void leave(Fiber& from);
  std::string describe_deadlock() const;
  [[noreturn]] void abandon_deadlock();

  std::uint32_t ready_warps_ = 0;
  Barrier barriers_[16];
  int votes_ = 0, vote_result_ = 0;
  std::uint64_t polled_progress_ = 0;
  std::uint32_t polling_ = 0, idle_rounds_ = 0;
  Context outside_;
  bool failed_ = false;
  std::string failure_;
  std::uint64_t random_state_ = 1;
  char* stacks_ = nullptr;
  std::size_t stacks_bytes_ = 0, stack_stride_ = 0, stack_bytes_ = 0;
  char* shared_map_ = nullptr;
  std::size_t shared_capacity_ = 0;
  // ThreadSanitizer: grid to threads, threads to grid; the fibers' and the copy engine's identities
  char begins_ = 0, ends_ = 0;
  std::vector<void*> sanitizer_fibers_;
  void* outside_fiber_ = nullptr;
  void* engine_fiber_ = nullptr;
  // AddressSanitizer: the host thread's own stack
  const void* outside_stack_ = nullptr;
  std::size_t outside_stack_bytes_ = 0;
};

/// The worker whose fiber runs on this host thread; null outside kernels.
inline constinit thread_local Worker* worker = nullptr;

/// From where shared addresses count: sm_90 reserves the first KiB.
inline constexpr std::uint32_t shared_base = 1024;

}  // namespace bdlm::emu
