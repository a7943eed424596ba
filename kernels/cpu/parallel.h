// SPDX-License-Identifier: Apache-2.0
// How operations are cut over OpenMP threads: contiguous ranges that depend on the number of
// threads only, so that results do too.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "kernels/tensor.h"

namespace bdlm {

/// Elements below which a fork (about 5 us) costs more than it saves.
inline constexpr std::int64_t parallel_threshold = 32768;

/// Threads worth waking for `work` elements in `items` independent pieces.
inline int useful_threads(int threads, std::int64_t items, std::int64_t work) {
  const std::int64_t wanted = std::min(items, work / parallel_threshold + 1);
  return static_cast<int>(std::clamp<std::int64_t>(wanted, 1, threads));
}

/// body(thread, first, last) once a thread, on the ranges that make up [0, items). `work` is the
/// number of elements behind all items. body must not throw.
template <class Body>
void parallel_ranges(int threads, std::int64_t items, std::int64_t work, Body&& body) {
  if (items <= 0) return;
  const int team = useful_threads(threads, items, work);
  if (team == 1) return body(0, std::int64_t{0}, items);
#pragma omp parallel num_threads(team)
  {
    // The runtime may give fewer threads than asked for: each then takes several ranges.
    for (int part = omp_get_thread_num(); part < team; part += omp_get_num_threads()) {
      body(part, items * part / team, items * (part + 1) / team);
    }
  }
}

/// body(row, first, last) on pieces of rows that cover rows x cols elements, evenly by element: for
/// elementwise operations on anything from one long row to many short ones.
template <class Body>
void parallel_elements(int threads, std::int64_t rows, std::int64_t cols, Body&& body) {
  // Cutting at multiples of 64 elements keeps threads off each other's cache lines.
  constexpr std::int64_t grain = 64;
  const std::int64_t size = rows * cols;
  parallel_ranges(threads, (size + grain - 1) / grain, size,
                  [&](int, std::int64_t first, std::int64_t last) {
                    std::int64_t begin = first * grain;
                    const std::int64_t end = std::min(last * grain, size);
                    for (std::int64_t row = begin / cols; begin < end; ++row) {
                      const std::int64_t stop = std::min(end, (row + 1) * cols);
                      body(row, begin - row * cols, stop - row * cols);
                      begin = stop;
                    }
                  });
}

}  // namespace bdlm
