// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding (Su et al., arXiv 2104.09864) as tables of cos and sin, with the
// context extensions of Llama 3 and YaRN (Peng et al., arXiv 2309.00071).
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "model/config.h"

namespace bdlm {

/// [rotary_dim / 2] radians a position.
std::vector<double> inverse_frequencies(const ModelConfig& config);

/// Factor of cos and sin: YaRN's m(mscale) / m(mscale_all_dim) with m(s) = 0.1 s ln(factor) + 1,
/// m(1) when they are not both given; 1 without YaRN.
double rotary_magnitude(const RopeScaling& scaling);

/// Llama 4's factor of a rotated query: 1 + beta ln(1 + floor(position / original length)).
double query_temperature(const RopeScaling& scaling, std::int64_t position);

/// The tables in device memory, for all positions that have been asked for.
class RotaryCache {
 public:
  /// accumulate: what accumulate_type gives for the run's dtype.
  RotaryCache(Device& device, const ModelConfig& config, DType accumulate);

  /// Tables of at least `positions` rows (the longest document). The views are valid until a call
  /// asks for more rows than there are: fetch them where they are used, do not keep them.
  RotaryTable table(std::int64_t positions);

 private:
  void fill(std::int64_t positions);

  Device& device_;
  RopeScaling scaling_;
  std::vector<double> frequencies_;
  DType dtype_;
  Buffer cos_, sin_, temperature_;
  std::int64_t positions_ = 0;
};

}  // namespace bdlm
