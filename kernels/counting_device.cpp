// SPDX-License-Identifier: Apache-2.0
#include "kernels/counting_device.h"

#include <algorithm>
#include <cstring>

namespace bdlm {

void* CountingDevice::acquire(std::size_t bytes, Memory kind) {
  if (bytes == 0) return nullptr;
  const auto k = static_cast<std::size_t>(kind);
  use_.bytes[k] += static_cast<std::int64_t>(bytes);
  use_.peak_by_kind[k] = std::max(use_.peak_by_kind[k], use_.bytes[k]);
  total_ += static_cast<std::int64_t>(bytes);
  use_.peak = std::max(use_.peak, total_);
  // Not null, so that buffers know that they hold something; nothing reads or writes there.
  return reinterpret_cast<void*>(std::uintptr_t{4096});
}

void CountingDevice::release(void* data, std::size_t bytes, Memory kind) noexcept {
  if (data == nullptr) return;
  use_.bytes[static_cast<std::size_t>(kind)] -= static_cast<std::int64_t>(bytes);
  total_ -= static_cast<std::int64_t>(bytes);
}

void CountingDevice::reset_peak() {
  use_.peak_by_kind = use_.bytes;
  use_.peak = total_;
}

void CountingDevice::copy_to_host(Tensor source, void* host) {
  std::memset(host, 0, static_cast<std::size_t>(source.size()) * size_of(source.dtype));
}

void CountingDevice::choose_experts(const Router& router, Tensor, Tensor, Tensor,
                                    std::span<std::int32_t> chosen) {
  std::int64_t next = 0;
  for (std::int32_t& expert : chosen) expert = static_cast<std::int32_t>(next++ % router.experts);
}

std::shared_ptr<void> CountingDevice::upload_bytes(const void*, std::size_t bytes) {
  return {acquire(bytes, Memory::workspace),
          [this, bytes](void* data) { release(data, bytes, Memory::workspace); }};
}

}  // namespace bdlm
