// SPDX-License-Identifier: Apache-2.0
#include "trainer/run_device.h"

#include <array>
#include <optional>
#include <string>

#include "trainer/agree.h"
#include "trainer/threads.h"

namespace bdlm {
namespace {

/// A backend that has been found to work here, or why there is none.
struct Found {
  std::shared_ptr<Backend> backend;
  int devices = 0;
  std::string why_not;
};

Found find(const std::string& name) {
  Found found;
  try {
    found.backend = std::make_shared<Backend>(name);
    found.devices = found.backend->devices();
  } catch (const Error& error) {
    found.why_not = error.what();
  }
  return found;
}

/// nccl where no device serves two ranks; it refuses those.
Transport transport_of(Transport wanted, bool shared) {
  require(wanted != Transport::nccl || !shared,
          "parallel.transport: nccl wants a device for each rank, but ranks of this run share one: "
          "start fewer ranks a machine, or set host");
  if (wanted != Transport::automatic) return wanted;
  return shared ? Transport::host : Transport::nccl;
}

}  // namespace

std::shared_ptr<Device> make_device(const RunConfig& config, Mesh& mesh,
                                    std::shared_ptr<Traffic> traffic) {
  const DeviceKind kind = config.run.device;
  const auto on_cpu = [&] {
    return std::shared_ptr<Device>(make_cpu_device(set_threads(config.run.threads, mesh.world())));
  };
  if (kind == DeviceKind::cpu) return on_cpu();

  const std::string name = kind == DeviceKind::emu ? "emu" : "cuda";
  const Found found = find(name);
  const Locality here = mpi_locality();
  std::array<std::int64_t, 2> ranks{found.devices > 0, here.size > found.devices};
  mesh.world().all_reduce(ranks, Reduce::sum);
  const auto all = static_cast<std::int64_t>(mesh.world().size());
  if (kind == DeviceKind::automatic) {
    if (ranks[0] == 0) return on_cpu();
    require(ranks[0] == all,
            "run.device: auto finds a GPU on {} of {} ranks only: set run.device: cpu, or start the "
            "ranks on machines that have one",
            ranks[0], all);
  }
  agree(mesh.world(), [&] {
    require(found.devices > 0, "run.device: {}, but {}", name, found.why_not);
  });
  const Transport transport = transport_of(config.parallel.transport, ranks[1] > 0);
  std::shared_ptr<Device> device;
  agree(mesh.world(), [&] { device = found.backend->device(here.rank % found.devices); });
  mesh.wrap_groups(device_groups(*found.backend, device, transport, std::move(traffic)));
  return device;
}

}  // namespace bdlm
