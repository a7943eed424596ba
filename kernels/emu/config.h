// SPDX-License-Identifier: Apache-2.0
// How the emulated machine behaves. Every choice here is one that CUDA leaves open, so a correct
// program gives the same results under all of them; tests run kernels under several.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/emu/sanitizers.h"

namespace bdlm::emu {

enum class Order : std::uint8_t { forward, reverse, random };  // which runnable thread goes next
enum class Async : std::uint8_t { lazy, eager, random };       // when asynchronous copies land
// When queued work of a stream runs: only what a synchronisation needs; at once; any legal order.
enum class Streams : std::uint8_t { lazy, eager, random };

struct Config {
  Order order = Order::forward;
  Async async = Async::lazy;
  Streams streams = Streams::lazy;
  std::uint64_t seed = 1;  // of the random choices
  int workers = 1;         // host threads that run blocks; 1 under AddressSanitizer
  std::size_t stack_bytes = (BDLM_EMU_ASAN || BDLM_EMU_TSAN ? 256 : 64) * 1024;  // a CUDA thread
  bool strict_sites = true;        // lanes of one collective must stand at one source position
  bool poison_shared = true;       // dynamic shared memory starts as 0xff bytes (NaN)
  bool cross_block_races = false;  // ThreadSanitizer only; for kernels without static __shared__

  // The simulated machine.
  int devices = 1;
  int compute = 90;                           // 10 * major + minor
  std::size_t memory = std::size_t{8} << 30;  // bytes of device memory

  /// Bytes of dynamic shared memory a block may ask for.
  std::size_t most_shared() const;
};

/// Defaults, changed by the environment: BDLM_EMU_ORDER, _ASYNC, _STREAMS, _SEED, _WORKERS,
/// _DEVICES, _COMPUTE, _MEMORY. Error when a value is not understood.
Config config_from_environment();

/// The configuration in force, at first config_from_environment(). Change it while nothing runs.
Config& config();

}  // namespace bdlm::emu
