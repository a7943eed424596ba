// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/tma.h"

#include <cstring>

#include "kernels/emu/mbarrier.h"
#include "kernels/emu/shared_memory.h"
#include "kernels/emu/worker.h"

namespace bdlm::emu {
namespace {

constexpr const char* tma = "cp.async.bulk.tensor";

/// The rules of cuTensorMapEncodeTiled that a map made by hand could break.
void check_map(const TensorMap& map, int rank) {
  if (map.rank != rank) fail("%s: a map of rank %d used with %d coordinates", tma, map.rank, rank);
  check_aligned(map.base, 16, tma);
  const std::uint32_t inner = map.box[0] * std::uint32_t(map.elem);
  if (inner == 0 || inner % 16) fail("%s: inner box of %u bytes, not a multiple of 16", tma, inner);
  constexpr std::uint32_t span[] = {~0u, 128, 64, 32};
  if (inner > span[int(map.swz)])
    fail("%s: inner box of %u bytes, more than the swizzle's %u", tma, inner, span[int(map.swz)]);
  for (int d = 0; d < rank; ++d) {
    if (map.box[d] == 0 || map.box[d] > 256) fail("%s: box[%d] is %u", tma, d, map.box[d]);
    if (d && map.stride[d] % 16)
      fail("%s: stride[%d] is %llu bytes, not a multiple of 16", tma, d,
           static_cast<unsigned long long>(map.stride[d]));
  }
}

/// One row of the box: what lies outside the tensor is zero.
void copy_row(const TensorMap& map, const char* row, bool inside, int first, std::uint32_t to) {
  const auto elem = std::uint32_t(map.elem);
  const std::uint32_t per_chunk = 16 / elem;
  for (std::uint32_t i = 0; i < map.box[0]; i += per_chunk) {
    alignas(16) char chunk[16] = {};
    for (std::uint32_t j = 0; inside && j < per_chunk; ++j) {
      const std::int64_t column = std::int64_t(first) + i + j;
      if (column < 0 || column >= std::int64_t(map.dim[0])) continue;
      std::memcpy(chunk + j * elem, row + column * elem, elem);
    }
    std::memcpy(worker->shared + (swizzled(map.swz, to + i * elem) - shared_base), chunk, 16);
  }
}

}  // namespace

void land(const BulkCopy& copy) {
  const TensorMap& map = copy.map;
  emu::acquire(worker);
  std::uint32_t rows = 1;
  for (int d = 1; d < map.rank; ++d) rows *= map.box[d];
  const std::uint32_t row_bytes = map.box[0] * std::uint32_t(map.elem);
  for (std::uint32_t r = 0; r < rows; ++r) {
    bool inside = true;
    std::int64_t offset = 0;
    std::uint32_t rest = r;
    for (int d = 1; d < map.rank; ++d) {
      const std::int64_t c = copy.corner[std::size_t(d)] + std::int64_t(rest % map.box[d]);
      rest /= map.box[d];
      inside = inside && c >= 0 && c < std::int64_t(map.dim[d]);
      offset += c * std::int64_t(map.stride[d]);
    }
    const char* row = inside ? static_cast<const char*>(map.base) + offset : nullptr;
    copy_row(map, row, inside, copy.corner[0], copy.to + r * row_bytes);
  }
  complete_bytes(copy.barrier, copy.bytes);
}

void issue_bulk_copy(void* smem, const TensorMap& map, std::uint64_t* barrier,
                     const std::array<int, 5>& corner, int rank) {
  const IgnoreRaces ignore;
  Worker& w = *worker;
  if (w.mode.compute < 90) fail("%s needs compute capability 9.0", tma);
  check_map(map, rank);
  check_aligned(smem, 128, tma);
  check_barrier(barrier);
  BulkCopy copy{map, shared_address(smem, tma), std::uint32_t(map.elem), barrier, corner};
  for (int d = 0; d < rank; ++d) copy.bytes *= map.box[d];
  at_shared_address(copy.to, copy.bytes, tma);
  w.stats.tma_bytes += copy.bytes;
  emu::release(&w);
  w.bulk.push_back(copy);
  if (w.mode.async == Async::eager) w.land_bulk_copy();
}

}  // namespace bdlm::emu
