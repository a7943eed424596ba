// SPDX-License-Identifier: Apache-2.0
#include "tests/mpi/place.h"

#include <cstdlib>
#include <optional>

#include "parallel/device_groups.h"

namespace bdlm::test {
namespace {

std::string device_name() {
  const char* set = std::getenv("BDLM_TEST_DEVICES");
  return set ? set : "cpu";
}

const Backend& backend() {
  static const Backend library(device_name());
  return library;
}

std::shared_ptr<Device> make_device() {
  if (device_name() == "cpu") return make_cpu_device(1);
  std::shared_ptr<Device> made = backend().device(mpi_locality().rank % backend().devices());
  use_managed_memory(backend(), *made, device_name() == "emu");
  return made;
}

}  // namespace

std::shared_ptr<Device> device() {
  // Never destroyed: shared vectors of static storage may outlive everything else.
  static const auto& one = *new std::shared_ptr<Device>(make_device());
  return one;
}

std::unique_ptr<Communicator> device_world(std::shared_ptr<Traffic> traffic,
                                           GroupOptions options) {
  const std::string name = options.name;
  auto host = mpi_world(traffic, std::move(options));
  if (device()->shares_host_memory()) return host;
  const char* set = std::getenv("BDLM_TEST_TRANSPORT");
  const auto transport = set && std::string(set) == "nccl" ? Transport::nccl : Transport::host;
  return device_groups(backend(), device(), transport, std::move(traffic))(std::move(host), name);
}

std::string missing_device() {
  if (device_name() == "cpu") return {};
  try {
    backend().devices();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace bdlm::test
