// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <numeric>
#include <random>

#include "parallel/layer_cut.h"

using namespace bdlm;

namespace {

double stage_cost(const std::vector<double>& costs, double first, double last,
                  const std::vector<LayerRange>& cut, std::size_t s) {
  return std::accumulate(costs.begin() + cut[s].begin, costs.begin() + cut[s].end, 0.0) +
         (s == 0 ? first : 0) + (s + 1 == cut.size() ? last : 0);
}

double largest(const std::vector<double>& costs, double first, double last,
               const std::vector<LayerRange>& cut) {
  double most = 0;
  for (std::size_t s = 0; s < cut.size(); ++s)
    most = std::max(most, stage_cost(costs, first, last, cut, s));
  return most;
}

/// All cuts, those with few layers in the last stages first.
void every_cut(int end, int stages, std::vector<LayerRange> behind,
               const std::function<void(const std::vector<LayerRange>&)>& visit) {
  const int fewest = stages == 1 ? end : 1, most = end - stages + 1;
  for (int count = fewest; count <= most; ++count) {
    std::vector<LayerRange> cut{{end - count, end}};
    cut.insert(cut.end(), behind.begin(), behind.end());
    if (stages == 1)
      visit(cut);
    else
      every_cut(end - count, stages - 1, cut, visit);
  }
}

}  // namespace

TEST_CASE("layers are cut as well as the best of all cuts") {
  std::mt19937 random(3);
  for (int trial = 0; trial < 400; ++trial) {
    const int layers = 1 + trial % 10;
    const int stages = 1 + static_cast<int>(random() % static_cast<unsigned>(layers));
    std::vector<double> costs;  // few values, so that there are ties; tenths, so that sums round
    for (int i = 0; i < layers; ++i) costs.push_back(static_cast<double>(random() % 4) * 0.1);
    const double first = static_cast<double>(random() % 3) * 0.1;
    const double last = static_cast<double>(random() % 8) * 0.1;
    CAPTURE(layers, stages, costs, first, last);

    std::vector<LayerRange> best;
    every_cut(layers, stages, {}, [&](const std::vector<LayerRange>& cut) {
      if (best.empty() ||
          largest(costs, first, last, cut) < largest(costs, first, last, best) - 1e-7)
        best = cut;
    });
    CHECK(cut_layers(costs, first, last, stages) == best);
  }
}

TEST_CASE("stages of a cut hold all layers in order") {
  const std::vector<double> costs(13, 1.0);
  const auto cut = cut_layers(costs, 0.5, 2.5, 4);
  CHECK(cut == std::vector<LayerRange>{{0, 4}, {4, 8}, {8, 12}, {12, 13}});
  CHECK(cut_layers(std::vector<double>(3, 0.1), 0, 0, 3) ==
        std::vector<LayerRange>{{0, 1}, {1, 2}, {2, 3}});
  CHECK(cut_layers(std::vector<double>(4, 0.0), 0, 0, 2) ==
        std::vector<LayerRange>{{0, 3}, {3, 4}});
}

TEST_CASE("a stage without a layer is refused with the most stages that work") {
  const std::vector<double> costs(3, 1.0);
  CHECK_THROWS_WITH(cut_layers(costs, 0, 0, 4), Catch::Contains("3 layers cannot be cut into 4") &&
                                                    Catch::Contains("is at most 3"));
  CHECK_THROWS_WITH(cut_layers(costs, 0, 0, 0), Catch::Contains("not into 0"));
  CHECK_THROWS_WITH(cut_layers({}, 0, 0, 1), Catch::Contains("0 layers"));
}
