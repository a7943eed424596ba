// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/memory_pool.h"

namespace bdlm {

/// Blocks are aligned to 64 bytes, large ones to (huge) pages.
class HostMemory final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override;
  void free(void* data) noexcept override;
};

}  // namespace bdlm
