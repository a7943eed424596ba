// SPDX-License-Identifier: Apache-2.0
// The device of this rank, from run.device and what the machine has.
#pragma once

#include <memory>

#include "kernels/device.h"
#include "parallel/mesh.h"
#include "trainer/run_config.h"

namespace bdlm {

/// Collective over the world. On a device with memory of its own the mesh's groups are wrapped for
/// it. Ranks of a machine take its devices in turn. Throws Error, in one sentence on every rank, when
/// run.device: cuda cannot be had, and where only some ranks have a device.
std::shared_ptr<Device> make_device(const RunConfig& config, Mesh& mesh,
                                    std::shared_ptr<Traffic> traffic);

}  // namespace bdlm
