// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bdlm {

/// What a layer keeps of its forward pass for the backward pass; the rest is computed again.
enum class Recompute : std::uint8_t {
  none,       // everything is kept
  selective,  // the layer's input, and attention's output and log-sum-exp: no attention runs twice
  full,       // the layer's input only
};

}  // namespace bdlm
