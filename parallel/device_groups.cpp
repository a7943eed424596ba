// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_groups.h"

#include <utility>

namespace bdlm {

WrapGroup device_groups(const Backend& backend, std::shared_ptr<Device> device, Transport transport,
                        std::shared_ptr<Traffic> traffic) {
  auto* make = reinterpret_cast<backend_entry::MakeGroup*>(backend.symbol("bdlm_make_group"));
  return [make, device = std::move(device), transport, traffic = std::move(traffic)](
             std::unique_ptr<Communicator> group, const std::string& name) {
    return std::unique_ptr<Communicator>(make(group.release(), device, transport, traffic, name));
  };
}

}  // namespace bdlm
