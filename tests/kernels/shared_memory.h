// SPDX-License-Identifier: Apache-2.0
// Memory of test matrices: the host's, or what host and device under test share.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

#include "kernels/device.h"

namespace bdlm::test {

/// Set while a device with memory of its own is under test (devices.cpp).
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

using SharedBytes = std::unique_ptr<unsigned char[], void (*)(void*)>;

inline SharedBytes shared_bytes(std::size_t count) {
  const bool on_host = under_test.device == nullptr;
  void* data = on_host ? ::operator new(count) : under_test.allocate(count);
  return {static_cast<unsigned char*>(data),
          on_host ? static_cast<void (*)(void*)>(::operator delete) : under_test.free};
}

}  // namespace bdlm::test
