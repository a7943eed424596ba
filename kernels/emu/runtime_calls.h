// SPDX-License-Identifier: Apache-2.0
// What the runtime functions share.
#pragma once

#include "kernels/emu/runtime_api.h"

namespace bdlm::emu {

/// Keeps an error for cudaGetLastError and returns it.
cudaError_t result(cudaError_t error);
/// No or invalid device.
cudaError_t device_status(int device);
/// Releases freed memory when no stream has work; damage found becomes the device's failure.
void collect_if_idle();

}  // namespace bdlm::emu
