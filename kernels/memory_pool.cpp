// SPDX-License-Identifier: Apache-2.0
#include "kernels/memory_pool.h"

#include <algorithm>
#include <bit>

namespace bdlm {
namespace {

constexpr std::size_t smallest_block = 64;

/// Eight classes between a power of two and the next.
std::size_t size_class(std::size_t bytes) {
  const std::size_t step = std::max(smallest_block, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

}  // namespace

MemoryPool::~MemoryPool() { trim(0); }

void* MemoryPool::acquire(std::size_t bytes, Memory kind) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const std::size_t block = size_class(bytes);
  const std::size_t needed = reserved_ - cached_ + block;
  peak_needed_ = std::max(peak_needed_, needed);
  FreeList& list = free_[block];
  void* data = nullptr;
  if (!list.blocks.empty()) {
    data = list.blocks.back();
    list.blocks.pop_back();
    cached_ -= block;
  } else {
    // Shapes vary, so blocks of sizes that never come back would pile up: what is held stays below
    // one and a half times what was once needed.
    trim(peak_needed_ + peak_needed_ / 2 - needed);
    list.blocks.reserve(list.made + 1);  // release must not have to allocate
    data = source_.allocate(block);
    if (!data) {
      trim(0);
      data = source_.allocate(block);
    }
    if (!data) refuse(bytes, kind);
    ++list.made;
    ++system_calls_;
    reserved_ += block;
  }
  const auto k = static_cast<std::size_t>(kind);
  use_.bytes[k] += static_cast<std::int64_t>(bytes);
  use_.peak_by_kind[k] = std::max(use_.peak_by_kind[k], use_.bytes[k]);
  total_ += static_cast<std::int64_t>(bytes);
  use_.peak = std::max(use_.peak, total_);
  return data;
}

void MemoryPool::release(void* data, std::size_t bytes, Memory kind) noexcept {
  if (!data) return;
  const std::lock_guard lock(mutex_);
  const std::size_t block = size_class(bytes);
  use_.bytes[static_cast<std::size_t>(kind)] -= static_cast<std::int64_t>(bytes);
  total_ -= static_cast<std::int64_t>(bytes);
  free_.find(block)->second.blocks.push_back(data);
  cached_ += block;
}

void MemoryPool::trim(std::size_t limit) {
  for (auto entry = free_.rbegin(); entry != free_.rend(); ++entry) {
    auto& [block, list] = *entry;
    while (cached_ > limit && !list.blocks.empty()) {
      source_.free(list.blocks.back());
      list.blocks.pop_back();
      --list.made;
      cached_ -= block;
      reserved_ -= block;
    }
  }
}

void MemoryPool::refuse(std::size_t bytes, Memory kind) const {
  std::string use;
  for (std::size_t k = 0; k < memory_kinds; ++k) {
    if (use_.bytes[k] == 0) continue;
    use += fmt::format("{}{} {:.1f} MiB", use.empty() ? "" : ", ", name_of(static_cast<Memory>(k)),
                       static_cast<double>(use_.bytes[k]) / 1048576);
  }
  const std::string remark = source_.remark();
  throw OutOfMemory(fmt::format(
      "out of memory: {:.1f} more MiB for {} are not to be had{}{}; in use: {}; use smaller "
      "micro-batches, recompute: full, a smaller batch.loss_chunk or more ranks",
      static_cast<double>(bytes) / 1048576, name_of(kind), remark.empty() ? "" : ": ", remark,
      use.empty() ? "nothing" : use));
}

MemoryUse MemoryPool::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

void MemoryPool::reset_peak() {
  const std::lock_guard lock(mutex_);
  use_.peak_by_kind = use_.bytes;
  use_.peak = total_;
}

std::size_t MemoryPool::reserved() const {
  const std::lock_guard lock(mutex_);
  return reserved_;
}

std::size_t MemoryPool::system_calls() const {
  const std::lock_guard lock(mutex_);
  return system_calls_;
}

}  // namespace bdlm
