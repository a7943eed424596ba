// SPDX-License-Identifier: Apache-2.0
// Tiles in shared memory as TMA writes and wgmma reads them, the products of a warp group on them,
// and the ring of buffers between the thread that loads and the warp groups that compute.
#pragma once

#include "kernels/cuda/platform.cuh"
#include "kernels/cuda/tensor_map.h"

namespace bdlm::cuda {

/// A [Rows, Dim] tile of one head: slabs of 64 channels, each Rows rows of 128 bytes, swizzled.
/// Tiles start at multiples of 1024 bytes.
template <int Rows, int Dim>
struct Tile {
  static constexpr std::uint32_t slab_bytes = Rows * 128, bytes = Dim / box_channels * slab_bytes;

  /// The caller has announced `bytes` to the barrier.
  CU_INLINE static void load(unsigned char* tile, const TensorMap& map, std::uint64_t* arrived,
                             int head, int row) {
#pragma unroll
    for (int slab = 0; slab < Dim / box_channels; ++slab) {
      ptx::tma_load_3d(tile + slab * slab_bytes, &map, arrived, slab * box_channels, head, row);
    }
  }
  /// Where channels [8 i, 8 i + 8) of a row lie: pieces of 16 bytes change places by row.
  CU_INLINE static unsigned char* piece(unsigned char* tile, int row, int i) {
    return tile + i / 8 * slab_bytes + row * 128 + ((i ^ row) & 7) * 16;
  }
  /// Operand whose summed dimension is the channels; rows from `row` on, a multiple of 8.
  CU_INLINE static std::uint64_t along_channels(const unsigned char* tile, int row) {
    return ptx::make_wgmma_desc(tile + row * 128, 16, 1024, ptx::Swizzle::b128);
  }
  /// Bytes to the 16 channels of step `step`.
  CU_INLINE static std::uint32_t channel_step(int step) {
    return step / 4 * slab_bytes + step % 4 * 32;
  }
  /// Operand B whose summed dimension is the rows, 16 rows (2048 bytes) a step.
  CU_INLINE static std::uint64_t along_rows(const unsigned char* tile) {
    return ptx::make_wgmma_desc(tile, slab_bytes, 1024, ptx::Swizzle::b128);
  }
};

/// Descriptors count in 16 bytes; tiles lie within the 256 KB that the field can say.
CU_INLINE std::uint64_t advance(std::uint64_t descriptor, std::uint32_t bytes) {
  return descriptor + (bytes >> 4);
}

/// Issues c [64, RowsB] = a[row .. row + 63] b^T.
template <int RowsA, int RowsB, int Dim>
CU_INLINE void multiply_transposed(float (&c)[RowsB / 2], const unsigned char* a, int row,
                                   const unsigned char* b) {
  using TileA = Tile<RowsA, Dim>;
  using TileB = Tile<RowsB, Dim>;
  const std::uint64_t left = TileA::along_channels(a, row), right = TileB::along_channels(b, 0);
#pragma unroll
  for (int step = 0; step < Dim / 16; ++step) {
    ptx::wgmma_m64k16_ss<RowsB>(c, advance(left, TileA::channel_step(step)),
                                advance(right, TileB::channel_step(step)), step > 0);
  }
}

/// Issues c [64, Dim] += p [64, Rows] b, with p in registers.
template <int Rows, int Dim>
CU_INLINE void multiply_add(float (&c)[Dim / 2], const std::uint32_t (&p)[Rows / 16][4],
                            const unsigned char* b) {
  const std::uint64_t right = Tile<Rows, Dim>::along_rows(b);
#pragma unroll
  for (int step = 0; step < Rows / 16; ++step) {
    ptx::wgmma_m64k16_rs<Dim, true>(c, p[step], advance(right, step * 2048), true);
  }
}

/// Where a thread's accumulators lie in the 64 rows of its warp group: element 4 i + 2 h + j is in
/// row first + 8 h, column 8 i + column + j.
struct Fragment {
  int first, column;
  CU_INLINE explicit Fragment(int thread)
      : first((thread >> 5 & 3) * 16 + (thread & 31) / 4), column((thread & 3) * 2) {}
};

/// An accumulator rounded to the left operand of the next product: the layouts agree.
template <int Cols>
CU_INLINE void round_to_operand(const float (&x)[Cols / 2], std::uint32_t (&p)[Cols / 16][4]) {
#pragma unroll
  for (int i = 0; i < Cols / 4; ++i) {
    p[i / 4][i % 4] = ptx::pack_bf16(x[2 * i], x[2 * i + 1]);
  }
}

/// Stages of shared memory that one thread fills and all consuming warps empty, in turn. `i` counts
/// the fillings from 0.
template <unsigned Stages>
struct Ring {
  std::uint64_t* full;  // [Stages], then empty [Stages]
  static constexpr std::uint32_t bytes = 2 * Stages * sizeof(std::uint64_t);

  CU_INLINE void init(unsigned fillers, unsigned warps) const {
    for (unsigned stage = 0; stage < Stages; ++stage) {
      ptx::mbarrier_init(full + stage, fillers);
      ptx::mbarrier_init(full + Stages + stage, warps);
    }
  }
  CU_INLINE static unsigned stage(unsigned i) { return i % Stages; }
  CU_INLINE void wait_empty(unsigned i) const {
    if (i >= Stages) ptx::mbarrier_wait(full + Stages + i % Stages, (i / Stages - 1) & 1);
  }
  /// Announces what TMA will write; returns the barrier to give it.
  CU_INLINE std::uint64_t* expect(unsigned i, std::uint32_t bytes_to_come) const {
    ptx::mbarrier_arrive_expect_tx(full + i % Stages, bytes_to_come);
    return full + i % Stages;
  }
  /// For a filler that stores by itself.
  CU_INLINE void arrive(unsigned i) const { ptx::mbarrier_arrive(full + i % Stages); }
  CU_INLINE void wait_full(unsigned i) const {
    ptx::mbarrier_wait(full + i % Stages, i / Stages & 1);
  }
  /// Every consuming warp calls it once its reads are complete (after wgmma_wait).
  CU_INLINE void release(unsigned i) const {
    if ((threadIdx.x & 31) == 0) ptx::mbarrier_arrive(full + Stages + i % Stages);
  }
};

}  // namespace bdlm::cuda
