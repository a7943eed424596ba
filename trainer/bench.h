// SPDX-License-Identifier: Apache-2.0
// How fast a run's steps are, beside what the library reaches on the step's own matrix products in
// the same process: machines differ and are noisy, the ratio is what counts.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/device.h"
#include "trainer/run_config.h"

namespace bdlm {

struct BenchResult {
  std::string device;           // rank 0's
  double step_seconds = 0;      // the fastest of the timed steps
  double useful_flops = 0;      // of all ranks, a step: as MFU counts them
  double pairs = 0;             // visible (query, key) pairs of all ranks, a step, all layers
  double rows = 0;              // rows that layers compute, all ranks and layers
  double product_flops = 0;     // of the timed products, a step of this rank
  double product_seconds = 0;   // their fastest times, added up
  double memory_peak = 0;       // bytes, the fullest rank
  std::array<double, memory_kinds> memory_by_kind{};  // each kind's own peak, the fullest rank
  std::int64_t tokens = 0;      // clean tokens a step
  std::int64_t attention_forward_pairs = 0;  // done, recomputation included
  double product_rate() const { return product_flops / product_seconds; }
  double step_rate() const { return useful_flops / step_seconds; }
};

/// Dense bfloat16 products of a GPU by its name, FLOPs a second: what its maker states, and what a
/// large product has been measured to reach (0: nobody has).
struct PeakRate {
  double stated = 0, measured = 0;
};
/// Zeros for a device that is not in the table.
PeakRate peak_of(const std::string& device);

/// Runs `steps` optimizer steps of the run file after one to warm up. Nothing is written.
/// Collective over the launch.
BenchResult bench_step(const RunConfig& config, std::int64_t steps);

}  // namespace bdlm
