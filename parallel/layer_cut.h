// SPDX-License-Identifier: Apache-2.0
// Which layers a pipeline stage holds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace bdlm {

/// Consecutive layers of the model, [begin, end).
struct LayerRange {
  std::int64_t begin = 0, end = 0;
  std::int64_t count() const { return end - begin; }
  bool operator==(const LayerRange&) const = default;
};

/// Cuts the depth into `virtual_stages` runs of layers, at least one layer each, so that the
/// costliest stage costs as little as it can. The first stage also bears first_extra (the
/// embedding), the last one last_extra (the head and the loss); costs are in any unit and not
/// negative. Of several such cuts it takes the one with the fewest layers in the last stage, then
/// in the one before it, and so on: late stages hold the activations of fewer micro-batches, and
/// early ones wait for nobody. A pure function, so every rank finds the same cut. Costs that differ
/// by rounding (1e-9 of the result) count as equal.
///
/// Throws Error, with the largest number that works, for more stages than layers.
std::vector<LayerRange> cut_layers(std::span<const double> layer_costs, double first_extra,
                                   double last_extra, int virtual_stages);

}  // namespace bdlm
