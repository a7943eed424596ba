// SPDX-License-Identifier: Apache-2.0
// Memory of the emulated machine. Fresh and freed memory is filled with 0xff bytes, NaN in every
// floating-point type. Freed memory is not given out again before no stream has work that could
// still use it, and is then looked at for writes that came after; so is a margin behind each block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace bdlm::emu {

enum class Place : std::uint8_t {
  device,    // wholly inside a live block of device or managed memory
  pinned,    // wholly inside a live block of cudaMallocHost
  pageable,  // outside of all blocks
  invalid    // reaches past the end of a block, or was freed
};

class Memory {
 public:
  /// Null when there is not so much.
  void* allocate(Place place, int device, std::size_t bytes);
  /// Whether data begins a live block of this place that is not yet given back.
  bool owns(Place place, const void* data);
  /// The block no longer counts as used; the memory is still there.
  void give_back(const void* data);
  void free(void* data);
  Place place_of(const void* data, std::size_t bytes);
  std::size_t used(int device);
  /// Call when no stream has work: releases freed memory. Error for writes where none may be.
  void collect();
  void reset();

 private:
  struct Block {
    Place place;
    int device;
    std::size_t bytes;
    bool given_back = false, freed = false;
  };
  using Blocks = std::map<std::uintptr_t, Block>;
  Blocks::iterator find(const void* data);
  void release(Blocks::iterator block);

  std::mutex mutex_;
  Blocks blocks_;
  std::map<int, std::size_t> used_;
};

Memory& memory();

/// For operations: Error when a range of device memory has been freed meanwhile.
void require_live(const void* data, std::size_t bytes, const char* what);

}  // namespace bdlm::emu
