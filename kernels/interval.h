// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bdlm {

/// Keys [lo, hi) of a source; lo >= hi is empty. Written by the plan, read by the kernels.
struct Interval {
  std::int32_t lo = 0;
  std::int32_t hi = 0;
  bool operator==(const Interval&) const = default;
};

}  // namespace bdlm
