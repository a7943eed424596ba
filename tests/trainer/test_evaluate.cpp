// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "trainer/evaluate.h"

namespace bdlm {
namespace {

PackedRow row_of(std::int64_t tokens) {
  PackedRow row;
  row.index = 3;
  row.documents = {tokens - 5, 5};
  for (std::int64_t i = 0; i < tokens; ++i) row.tokens.push_back(static_cast<std::int32_t>(i % 11));
  row.eligible.assign(row.tokens.size(), 1);
  return row;
}

TEST_CASE("evaluation of blocks of one token masks each of them with weight 1: the chain rule") {
  Objective trained;
  trained.block_size = 1;
  trained.mask_token_id = 11;
  trained.schedule = NoiseSchedule::cosine;
  trained.views = Views::complementary;
  trained.weight = LossWeight::none;
  const CorruptedRow row = corrupt(row_of(40), evaluation_objective(trained), 12, 1, 1);
  REQUIRE(row.views.size() == 1);
  for (std::size_t i = 0; i < 40; ++i) {
    CHECK(row.views[0][i] == 11);
    CHECK(row.weights[0][i] == 1);
  }
}

TEST_CASE("evaluation is the unclipped bound whatever is trained") {
  Objective trained;
  trained.block_size = 8;
  trained.mask_token_id = 11;
  trained.range_low = 0.3;
  trained.range_high = 0.8;
  trained.ar_loss_weight = 1;
  trained.clean_attention = CleanAttention::causal;
  trained.diffusion_loss_weight = 0.3;
  trained.normalize = Normalize::masked;
  const Objective o = evaluation_objective(trained);
  CHECK(o.range_low == 0);
  CHECK(o.range_high == 1);
  CHECK(!o.autoregressive());
  // Its weights average to one a token: sum of p'/p over masked tokens estimates their number.
  double sum = 0, tokens = 0;
  for (std::int64_t draw = 1; draw <= 400; ++draw) {
    const CorruptedRow row = corrupt(row_of(64), o, 12, 7, draw);
    for (const double w : row.weights[0]) sum += w;
    tokens += 64;
  }
  CHECK(sum / tokens == Approx(1).epsilon(0.1));
}

}  // namespace
}  // namespace bdlm
