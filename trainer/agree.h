// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "parallel/communicator.h"

namespace bdlm {

/// Runs `work` on every rank of the world; if it throws Error on any of them, all throw that Error,
/// with the rank in front where not all have failed. Collective: `work` itself must not be.
void agree(Communicator& world, const std::function<void()>& work);

}  // namespace bdlm
