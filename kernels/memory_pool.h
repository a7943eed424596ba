// SPDX-License-Identifier: Apache-2.0
// A caching allocator: a freed block waits in the list of its size class for the next request.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kernels/device.h"

namespace bdlm {

/// Where a pool gets its blocks: the host's system, or a device.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // null: there is no more
  virtual void free(void* data) noexcept = 0;
  /// What the user can be told when there is no more, such as how much the device has; or empty.
  virtual std::string remark() const { return {}; }
};

/// There is no more memory. The text names what was asked for and what is in use by kind.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// Counts the bytes asked for, not the rounding to size classes (at most an eighth) nor what lies
/// cached. Safe from several threads.
class MemoryPool {
 public:
  explicit MemoryPool(MemorySource& source) : source_(source) {}  // outlives the pool
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

  [[noreturn]] void refuse(std::size_t bytes, Memory kind) const;

  MemorySource& source_;
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
