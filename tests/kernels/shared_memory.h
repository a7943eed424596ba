// SPDX-License-Identifier: Apache-2.0
// Memory of test matrices: the host's, or what host and device under test share.
#pragma once

#include <cstddef>
#include <new>

#include "kernels/backend.h"

namespace bdlm::test {

/// Set while a device with memory of its own is under test.
struct DeviceUnderTest {
  Device* device = nullptr;
  void* (*allocate)(std::size_t bytes) = nullptr;
  void (*free)(void* data) = nullptr;  // waits for work that may still use it
  bool emulated = false;               // a thousand times slower than a device
  bool may_run = false;                // work that the host has not waited for
};
inline DeviceUnderTest under_test;

/// Before the host reads or writes memory that the device may use.
inline void settle() {
  if (!under_test.may_run) return;
  under_test.may_run = false;
  under_test.device->synchronize();
}

/// Before memory is handed to a device.
inline void hand_over() { under_test.may_run = under_test.device != nullptr; }

/// Test memory from now on is that of this device of the backend.
inline void use_managed_memory(const Backend& backend, Device& device, bool emulated) {
  under_test.device = &device;
  under_test.emulated = emulated;
  under_test.allocate =
      reinterpret_cast<void* (*)(std::size_t)>(backend.symbol("bdlm_allocate_managed"));
  under_test.free = reinterpret_cast<void (*)(void*)>(backend.symbol("bdlm_free_managed"));
}

inline void* allocate_shared(std::size_t bytes) {
  return under_test.device ? under_test.allocate(bytes) : ::operator new(bytes);
}
inline void free_shared(void* data) {
  if (under_test.device)
    under_test.free(data);
  else
    ::operator delete(data);
}

}  // namespace bdlm::test
