// SPDX-License-Identifier: Apache-2.0
// Groups whose tensors and messages lie in a backend's device memory.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernels/backend.h"
#include "parallel/communicator.h"

namespace bdlm {

/// nccl: directly between devices. host: over MPI through pinned host memory, for several ranks on
/// one device. automatic: nccl where every rank has a device to itself.
enum class Transport : std::uint8_t { automatic, nccl, host };

/// Takes a group of MPI and gives one for device memory with the same ranks; it carries host values
/// as before. Collective over the group. Name: in messages.
using WrapGroup = std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator> group,
                                                              const std::string& name)>;

/// The groups keep the device alive. transport: not automatic.
WrapGroup device_groups(const Backend& backend, std::shared_ptr<Device> device, Transport transport,
                        std::shared_ptr<Traffic> traffic);

namespace backend_entry {
/// Takes over `host`.
using MakeGroup = Communicator*(Communicator* host, std::shared_ptr<Device> device, Transport transport,
                                std::shared_ptr<Traffic> traffic, const std::string& name);
}  // namespace backend_entry

}  // namespace bdlm
