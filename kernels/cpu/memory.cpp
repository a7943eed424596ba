// SPDX-License-Identifier: Apache-2.0
// The memory pool and the device's memory operations.
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/cpu_device.h"

namespace bdlm {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

/// Eight classes between a power of two and the next.
std::size_t size_class(std::size_t bytes) {
  const std::size_t step = std::max(alignment, std::bit_floor(bytes) / 8);
  return (bytes + step - 1) / step * step;
}

void* from_system(std::size_t bytes) {
  if (bytes > PTRDIFF_MAX) return nullptr;  // the product of sizes has overflowed
  const bool large = bytes >= huge_page;
  const std::size_t align = large ? huge_page : alignment;
  void* data = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  // Only a hint: where huge pages are not to be had the block works as well.
  if (data && large) madvise(data, bytes, MADV_HUGEPAGE);
  return data;
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
    data = from_system(block);
    if (!data) {
      trim(0);
      data = from_system(block);
    }
    require(data != nullptr,
            "out of memory: {} more bytes for {} are not to be had; use smaller micro-batches, "
            "recomputation or more ranks",
            bytes, name_of(kind));
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
      std::free(list.blocks.back());
      list.blocks.pop_back();
      --list.made;
      cached_ -= block;
      reserved_ -= block;
    }
  }
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

void* CpuDevice::acquire(std::size_t bytes, Memory kind) { return pool_.acquire(bytes, kind); }

void CpuDevice::release(void* data, std::size_t bytes, Memory kind) noexcept {
  pool_.release(data, bytes, kind);
}

MemoryUse CpuDevice::memory() const { return pool_.use(); }

void CpuDevice::reset_peak() { pool_.reset_peak(); }

void CpuDevice::copy_to_host(Tensor source, void* host) {
  copy(source, {host, source.rows, source.cols, source.cols, source.dtype});
}

void CpuDevice::copy_from_host(const void* host, Tensor target) {
  // A Tensor has no const form; copy only reads its first argument.
  copy({const_cast<void*>(host), target.rows, target.cols, target.cols, target.dtype}, target);
}

std::shared_ptr<void> CpuDevice::upload_bytes(const void* host, std::size_t bytes) {
  void* data = pool_.acquire(bytes, Memory::workspace);
  std::memcpy(data, host, bytes);
  return {data, [this, bytes](void* p) { pool_.release(p, bytes, Memory::workspace); }};
}

}  // namespace bdlm
