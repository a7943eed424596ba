// SPDX-License-Identifier: Apache-2.0
// Where the tensors of these tests lie and who carries them: host memory and MPI, or with
// BDLM_TEST_DEVICES=emu or cuda a device's memory and a group made for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/communicator.h"
#include "tests/kernels/shared_memory.h"

namespace bdlm::test {

/// One for all cases; the CPU's has one thread.
std::shared_ptr<Device> device();

/// The world, for memory of device(). BDLM_TEST_TRANSPORT: host (default) or nccl.
std::unique_ptr<Communicator> device_world(std::shared_ptr<Traffic> traffic,
                                           GroupOptions options = {});

/// The reason why the device of the tests cannot be used here, or empty.
std::string missing_device();

template <class T>
struct SharedAllocator {
  using value_type = T;
  SharedAllocator() = default;
  template <class U>
  SharedAllocator(const SharedAllocator<U>&) {}
  T* allocate(std::size_t count) {
    device();
    return static_cast<T*>(allocate_shared(count * sizeof(T)));
  }
  void deallocate(T* data, std::size_t) { free_shared(data); }
  friend bool operator==(const SharedAllocator&, const SharedAllocator&) { return true; }
};

/// A vector that host and device can reach. The host waits before it touches one:
/// device()->synchronize().
template <class T>
using SharedVector = std::vector<T, SharedAllocator<T>>;

}  // namespace bdlm::test
