// SPDX-License-Identifier: Apache-2.0
#ifdef BDLM_EMU
#include "parallel/emu/own_motion.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>

#include "kernels/emu/queues.h"

namespace bdlm::emu {
namespace {

constexpr std::chrono::microseconds shortest{20}, longest{500};

struct Mover {
  std::atomic<bool> stop = false;
  std::thread thread{[this] {
    auto pause = shortest;
    while (!stop) {
      if (queues().advance()) {
        pause = shortest;
        continue;
      }
      std::this_thread::sleep_for(pause);
      pause = pause < longest ? 2 * pause : longest;
    }
  }};
  ~Mover() {
    stop = true;
    thread.join();
  }
};

std::mutex mutex;
int users = 0;
std::unique_ptr<Mover> mover;

}  // namespace

OwnMotion::OwnMotion() {
  const std::lock_guard lock(mutex);
  if (users++ == 0) mover = std::make_unique<Mover>();
}

OwnMotion::~OwnMotion() {
  const std::lock_guard lock(mutex);
  if (--users == 0) mover.reset();
}

}  // namespace bdlm::emu
#endif
