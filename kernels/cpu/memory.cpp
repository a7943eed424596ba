// SPDX-License-Identifier: Apache-2.0
// The host's memory, and the device's memory operations.
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "kernels/cpu/cpu_device.h"

namespace bdlm {
namespace {

constexpr std::size_t alignment = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

}  // namespace

void* HostMemory::allocate(std::size_t bytes) {
  if (bytes > PTRDIFF_MAX) return nullptr;  // the product of sizes has overflowed
  const bool large = bytes >= huge_page;
  const std::size_t align = large ? huge_page : alignment;
  void* data = std::aligned_alloc(align, (bytes + align - 1) / align * align);
  // Only a hint: where huge pages are not to be had the block works as well.
  if (data && large) madvise(data, bytes, MADV_HUGEPAGE);
  return data;
}

void HostMemory::free(void* data) noexcept { std::free(data); }

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
