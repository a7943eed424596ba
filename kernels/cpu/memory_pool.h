// SPDX-License-Identifier: Apache-2.0
// A caching allocator: a freed block waits in the list of its size class for the next request.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/device.h"

namespace bdlm {

/// Blocks are aligned to 64 bytes, large ones to (huge) pages. Counts the bytes asked for, not the
/// rounding to size classes (at most an eighth) nor what lies cached. Safe from several threads.
class MemoryPool {
 public:
  MemoryPool() = default;
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  ~MemoryPool();

  void* acquire(std::size_t bytes, Memory kind);  // null for 0 bytes
  void release(void* data, std::size_t bytes, Memory kind) noexcept;

  MemoryUse use() const;
  void reset_peak();
  std::size_t reserved() const;      // bytes held from the system, in use or cached
  std::size_t system_calls() const;  // blocks ever asked of the system; constant in a steady state

 private:
  struct FreeList {
    std::vector<void*> blocks;
    std::size_t made = 0;  // blocks of this class, in use or free
  };

  void trim(std::size_t limit);  // frees cached blocks, large ones first, down to `limit` bytes

  mutable std::mutex mutex_;
  std::map<std::size_t, FreeList> free_;  // by size class
  std::size_t reserved_ = 0;              // bytes held from the system
  std::size_t cached_ = 0;                // of these, in free_
  std::size_t peak_needed_ = 0;           // most ever in use at once
  std::size_t system_calls_ = 0;
  std::int64_t total_ = 0;  // of use_.bytes
  MemoryUse use_;
};

}  // namespace bdlm
