// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/launch.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kernels/emu/queues.h"
#include "kernels/emu/worker.h"

namespace bdlm::emu {
namespace {

/// A grid on its way: workers take blocks from it.
struct Job {
  const Grid& grid;
  std::uint64_t blocks;
  std::atomic<std::uint64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex mutex;  // of what follows
  std::string failure;
  Stats stats;
};

Worker& own_worker() {
  static thread_local Worker w;
  return w;
}

void work(Job& job) {
  Worker& w = own_worker();
  worker = &w;
  try {
    w.start_grid(job.grid);
    for (;;) {
      const std::uint64_t block = job.next.fetch_add(1, std::memory_order_relaxed);
      if (block >= job.blocks || job.failed) break;
      w.run_block(block);
    }
    w.finish_grid();
  } catch (const std::exception& e) {
    const std::lock_guard lock(job.mutex);
    if (!job.failed) job.failure = e.what();
    job.failed = true;
  }
  worker = nullptr;
  const std::lock_guard lock(job.mutex);
  job.stats.add(w.stats);
}

/// Threads that stay: a new one for each grid would have to map its stacks again.
class Helpers {
 public:
  ~Helpers() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    start_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  void run(Job& job, int helpers) {
    std::unique_lock lock(mutex_);
    while (int(threads_.size()) < helpers)
      threads_.emplace_back([this, id = int(threads_.size()), seen = round_] { help(id, seen); });
    job_ = &job;
    wanted_ = running_ = helpers;
    ++round_;
    start_.notify_all();
    lock.unlock();
    work(job);
    lock.lock();
    finished_.wait(lock, [&] { return running_ == 0; });
    wanted_ = 0;
  }

 private:
  void help(int id, std::uint64_t seen) {
    for (;;) {
      std::unique_lock lock(mutex_);
      start_.wait(lock, [&] { return stop_ || (round_ != seen && id < wanted_); });
      if (stop_) return;
      seen = round_;
      Job& job = *job_;
      lock.unlock();
      work(job);
      lock.lock();
      if (--running_ == 0) finished_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable start_, finished_;
  std::vector<std::thread> threads_;
  Job* job_ = nullptr;
  std::uint64_t round_ = 0;
  int wanted_ = 0, running_ = 0;
  bool stop_ = false;
};

void check(const Grid& g) {
  const auto refuse = [&](const std::string& text) {
    throw Error(std::string("emulation: kernel ") + g.name + ": " + text);
  };
  const std::uint64_t threads = std::uint64_t(g.block.x) * g.block.y * g.block.z;
  if (threads == 0 || threads > 1024 || g.block.z > 64)
    refuse("a block of " + std::to_string(g.block.x) + " x " + std::to_string(g.block.y) + " x " +
           std::to_string(g.block.z) + " threads");
  if (g.grid.x == 0 || g.grid.y == 0 || g.grid.z == 0 || g.grid.x > 0x7fffffffu ||
      g.grid.y > 65535 || g.grid.z > 65535)
    refuse("a grid of " + std::to_string(g.grid.x) + " x " + std::to_string(g.grid.y) + " x " +
           std::to_string(g.grid.z) + " blocks");
  if (g.shared > config().most_shared())
    refuse(std::to_string(g.shared) + " bytes of dynamic shared memory, the limit is " +
           std::to_string(config().most_shared()));
}

std::mutex stats_mutex;
Stats stats_of_last;

}  // namespace

void run_grid(const Grid& grid) {
  check(grid);
  if (worker) throw Error(std::string("emulation: kernel ") + grid.name + ": launched by a kernel");
  static Helpers helpers;
  Job job{grid, std::uint64_t(grid.grid.x) * grid.grid.y * grid.grid.z, {}, {}, {}, {}, {}};
  const int workers = BDLM_EMU_ASAN ? 1 : std::max(1, config().workers);
  const int wanted = int(std::min<std::uint64_t>(std::uint64_t(workers), job.blocks)) - 1;
  if (wanted > 0) {
    helpers.run(job, wanted);
  } else {
    work(job);
  }
  {
    const std::lock_guard lock(stats_mutex);
    stats_of_last = job.stats;
  }
  if (job.failed) throw Error(job.failure);
}

Stats last_stats() {
  const std::lock_guard lock(stats_mutex);
  return stats_of_last;
}

void run_on_null_stream(const Grid& grid) {
  check(grid);
  queues().run_now([&] { run_grid(grid); });
}

cudaError_t enqueue(cudaStream_t stream, const Grid& grid, OwnedArgument argument) {
  check(grid);
  return queues().push(stream, [grid, owned = std::move(argument)] { run_grid(grid); });
}

}  // namespace bdlm::emu
