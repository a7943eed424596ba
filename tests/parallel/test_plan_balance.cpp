// SPDX-License-Identifier: Apache-2.0
// Rows that count in a mixture's balance term, over all ranks: each reader once, none besides.
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <span>

#include "test_plan_dense.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

/// Cuts the tokens into packed rows at documents' ends.
std::vector<std::int64_t> packed_rows(const Case& c, unsigned seed) {
  std::vector<std::int64_t> rows{0};
  for (std::size_t d = 0; d < c.documents.size(); ++d) {
    if (d > 0 && (seed >> d) % 2 == 1) rows.push_back(0);
    rows.back() += c.documents[d];
  }
  return rows;
}

/// Every layer's readers, by packed row and id.
std::vector<std::map<std::int64_t, std::int32_t>> readers_of(const Case& c,
                                                              std::span<const std::int64_t> rows) {
  std::vector<std::int32_t> packed;
  for (std::size_t r = 0; r < rows.size(); ++r)
    packed.insert(packed.end(), static_cast<std::size_t>(rows[r]), static_cast<std::int32_t>(r));
  std::vector<std::map<std::int64_t, std::int32_t>> layers;
  for (const std::vector<std::uint8_t>& set : Dense(c).reader_sets()) {
    auto& layer = layers.emplace_back();
    for (std::size_t row = 0; row < set.size(); ++row)
      if (set[row]) layer[static_cast<std::int64_t>(row)] = packed[row % packed.size()];
  }
  return layers;
}

}  // namespace

TEST_CASE("each reader counts once in the balance term and layers with other readers are apart") {
  for (unsigned seed = 0; seed < 400; ++seed) {
    Case c = random_case(seed);
    c.model.balance = true;
    const std::vector<std::int64_t> rows = packed_rows(c, seed);
    BatchShape batch = c.batch();
    batch.packed = rows;
    PlanOptions options;
    options.sharding = std::array{Sharding::csbp, Sharding::bp, Sharding::cp}[seed % 3];
    options.deal = (seed & 8) == 0 ? DealKind::head_tail : DealKind::contiguous;
    if (options.sharding != Sharding::cp && (seed & 16) != 0) options.deal = DealKind::round_robin;
    if ((seed & 32) != 0) options.elide = {false, false, false, false, false};
    options.elide.last_layer = (seed & 4) != 0;
    INFO("seed " << seed << ": " << describe(c));
    const auto expected = readers_of(c, rows);
    const int ranks = 1 + static_cast<int>(seed % 4);
    const std::vector<StepPlan> plans = make_plans(batch, c.model, options, ranks, 0, ranks);
    for (std::size_t layer = 0; layer < expected.size(); ++layer) {
      INFO("layer " << layer);
      std::vector<std::int64_t> sizes(rows.size(), 0);
      for (const auto& [row, packed] : expected[layer]) ++sizes[static_cast<std::size_t>(packed)];
      std::map<std::int64_t, std::int32_t> counted;
      for (const StepPlan& plan : plans) {
        const LayerPlan& here = plan.at(static_cast<std::int64_t>(layer));
        REQUIRE(here.readers == sizes);
        REQUIRE(here.packed.size() == here.out.size());
        for (std::size_t i = 0; i < here.out.size(); ++i) {
          if (here.packed[i] < 0) continue;
          const std::int32_t row = here.in[static_cast<std::size_t>(here.out[i])];
          REQUIRE(counted.emplace(row, here.packed[i]).second);
        }
      }
      REQUIRE(counted == expected[layer]);
    }
  }
}
