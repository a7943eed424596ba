// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/device.h"
#include "parallel/mesh.h"

namespace bdlm {

/// Rank 0 tells which ranks run on which node and device and which axes cross nodes, and warns when
/// a tensor or csbp group does. Collective over the world; says nothing of one rank alone.
void tell_placement(Mesh& mesh, const Device& device);

}  // namespace bdlm
