// SPDX-License-Identifier: Apache-2.0
#include "parallel/layer_cut.h"

#include <algorithm>
#include <limits>

#include "kernels/error.h"

namespace bdlm {

std::vector<LayerRange> cut_layers(std::span<const double> layer_costs, double first_extra,
                                   double last_extra, int virtual_stages) {
  const int layers = static_cast<int>(layer_costs.size());
  require(virtual_stages >= 1, "a model is cut into 1 stage or more, not into {}", virtual_stages);
  require(virtual_stages <= layers,
          "{} layers cannot be cut into {} pipeline stages, one would be without a layer: "
          "parallel.pipeline x parallel.virtual_stages is at most {}",
          layers, virtual_stages, layers);

  const auto at = [](int i) { return static_cast<std::size_t>(i); };
  std::vector<double> before(at(layers) + 1, 0);  // cost of the layers before
  for (int i = 0; i < layers; ++i) before[at(i) + 1] = before[at(i)] + layer_costs[at(i)];
  const auto cost = [&](int stage, int begin, int end) {
    return before[at(end)] - before[at(begin)] + (stage == 0 ? first_extra : 0) +
           (stage + 1 == virtual_stages ? last_extra : 0);
  };

  // least[s][n]: the least cost of the costliest of stages 0 .. s over the first n layers.
  const double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(at(virtual_stages), std::vector(at(layers) + 1, never));
  for (int s = 0; s < virtual_stages; ++s) {
    for (int n = s + 1; n <= layers; ++n) {
      double& best = least[at(s)][at(n)];
      if (s == 0) best = cost(0, 0, n);
      for (int begin = s; s > 0 && begin < n; ++begin)
        best = std::min(best, std::max(least[at(s) - 1][at(begin)], cost(s, begin, n)));
    }
  }

  const double bound = least.back().back() * (1 + 1e-9);
  std::vector<LayerRange> cut(at(virtual_stages));
  int end = layers;
  for (int s = virtual_stages - 1; s >= 0; --s) {
    int begin = s == 0 ? 0 : end - 1;
    while (s > 0 && (least[at(s) - 1][at(begin)] > bound || cost(s, begin, end) > bound)) --begin;
    cut[at(s)] = {begin, end};
    end = begin;
  }
  return cut;
}

}  // namespace bdlm
