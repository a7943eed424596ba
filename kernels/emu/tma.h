// SPDX-License-Identifier: Apache-2.0
// TMA: tiled bulk copies from global to shared memory. Lazy: a copy lands when no thread can run
// without it; eager: at issue.
#pragma once

#include <array>
#include <cstdint>

#include "kernels/emu/async_copy.h"

namespace bdlm::emu {
void issue_bulk_copy(void* smem, const TensorMap& map, std::uint64_t* barrier,
                     const std::array<int, 5>& corner, int rank);
void land(const BulkCopy& copy);
}  // namespace bdlm::emu

namespace bdlm::cuda::ptx {

using emu::Swizzle;
using emu::TensorMap;

inline void prefetch_tensormap(const TensorMap*) {}
inline void tma_load_2d(void* smem, const TensorMap* map, std::uint64_t* bar, int c0, int c1) {
  emu::issue_bulk_copy(smem, *map, bar, {c0, c1, 0, 0, 0}, 2);
}
inline void tma_load_3d(void* smem, const TensorMap* map, std::uint64_t* bar, int c0, int c1,
                        int c2) {
  emu::issue_bulk_copy(smem, *map, bar, {c0, c1, c2, 0, 0}, 3);
}
inline void tma_load_4d(void* smem, const TensorMap* map, std::uint64_t* bar, int c0, int c1,
                        int c2, int c3) {
  emu::issue_bulk_copy(smem, *map, bar, {c0, c1, c2, c3, 0}, 4);
}

}  // namespace bdlm::cuda::ptx
