// SPDX-License-Identifier: Apache-2.0
// Rows from every rank of a group to every other (all-to-all with counts).
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.h"
#include "parallel/communicator.h"

namespace bdlm {

/// `out` holds sends[0] rows for rank 0, then sends[1] for rank 1, ...; `in` gets receives[0] rows of
/// rank 0, then those of rank 1, ... Contiguous, of one dtype and width. What r sends to s is what s
/// receives from r. Collective over the group; done when work enqueued afterwards runs.
void swap_rows(Device& device, Communicator& group, Tensor out, std::span<const std::int64_t> sends,
               Tensor in, std::span<const std::int64_t> receives, Purpose purpose);

}  // namespace bdlm
