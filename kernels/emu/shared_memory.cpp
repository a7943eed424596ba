// SPDX-License-Identifier: Apache-2.0
#include "kernels/emu/shared_memory.h"

#include "kernels/emu/worker.h"

namespace bdlm::emu {

char* dynamic_shared() { return worker->shared; }

std::uint32_t shared_address(const void* p, const char* what) {
  const auto* c = static_cast<const char*>(p);
  const char* begin = worker->shared;
  if (c < begin || c > begin + worker->grid.shared)
    fail("%s: the address is not in the %zu bytes of dynamic shared memory", what,
         worker->grid.shared);
  return shared_base + std::uint32_t(c - begin);
}

char* at_shared_address(std::uint32_t address, std::uint32_t bytes, const char* what) {
  const std::uint32_t offset = address - shared_base;
  if (address < shared_base || std::uint64_t(offset) + bytes > worker->grid.shared)
    fail("%s: bytes [%d, %d) are outside the %zu bytes of dynamic shared memory", what, int(offset),
         int(offset + bytes), worker->grid.shared);
  return worker->shared + offset;
}

void fail_misaligned(const void* p, std::size_t alignment, const char* what) {
  fail("%s: address %p is not %zu-byte aligned", what, p, alignment);
}

}  // namespace bdlm::emu
