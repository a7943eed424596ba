// SPDX-License-Identifier: Apache-2.0
// What the backend's library exports to parallel/device_groups.cpp.
#include "parallel/cuda/device_group.h"
#include "parallel/device_groups.h"

using namespace bdlm;

extern "C" __attribute__((visibility("default"))) Communicator* bdlm_make_group(
    Communicator* host, std::shared_ptr<Device> device, Transport transport, std::shared_ptr<Traffic> traffic,
    const std::string& name) {
  std::unique_ptr<Communicator> group(host);
  auto mine = std::static_pointer_cast<cuda::CudaDevice>(device);  // made by this library
  // A group of one has nothing to say: a communicator of NCCL's would only cost memory and time.
  return (transport == Transport::nccl && group->size() > 1
              ? cuda::make_nccl_group(std::move(group), mine, std::move(traffic), name)
              : cuda::make_staged_group(std::move(group), mine))
      .release();
}
