// SPDX-License-Identifier: Apache-2.0
// The golden reader against numbers that h5py shows, and against what the cases must satisfy.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/error.h"
#include "trainer/golden.h"

using namespace bdlm;
using Catch::Contains;

namespace {

const std::string folder = std::string(BDLM_TEST_DATA) + "/golden/";

}  // namespace

TEST_CASE("a golden case with two views", "[golden]") {
  Objective objective;
  objective.views = Views::complementary;
  objective.mask_token_id = 65;
  const Golden golden = read_golden(folder + "fast_dllm_v2_views_shift", objective);
  CHECK(golden.normalizer == 39);
  CHECK(golden.ar_normalizer == 39);
  REQUIRE(golden.rows.size() == 2);
  for (std::size_t r = 0; r < 2; ++r) {
    const CorruptedRow& row = golden.rows[r];
    CHECK(row.clean.index == static_cast<std::int64_t>(r));
    CHECK(row.clean.size() == (r == 0 ? 32 : 17));
    REQUIRE(row.views.size() == 2);
    REQUIRE(row.weights.size() == 2);
    CHECK(row.ar_weights.empty());
    CHECK(row.clean.eligible.size() == row.clean.tokens.size());
    for (std::size_t i = 0; i < row.clean.tokens.size(); ++i) {
      // No token is corrupted twice, and the views differ from the clean copy by the mask id only.
      CHECK((row.views[0][i] == row.clean.tokens[i] || row.views[1][i] == row.clean.tokens[i]));
      for (std::size_t v = 0; v < 2; ++v) {
        CHECK((row.views[v][i] == row.clean.tokens[i] || row.views[v][i] == 65));
        if (row.weights[v][i] != 0) CHECK(row.views[v][i] == 65);
      }
    }
    REQUIRE(golden.traces[r].size() == 2);
    CHECK(golden.traces[r][1].size() == 3 * row.clean.tokens.size() * 32);
  }
  const CorruptedRow& row = golden.rows[0];
  CHECK(row.clean.documents == std::vector<std::int64_t>{22, 10});
  CHECK(std::vector<std::int32_t>(row.clean.tokens.begin(), row.clean.tokens.begin() + 6) ==
        std::vector<std::int32_t>{58, 8, 63, 62, 49, 11});
  CHECK(std::vector<std::int32_t>(row.views[1].begin(), row.views[1].begin() + 6) ==
        std::vector<std::int32_t>{65, 65, 65, 65, 49, 65});
  CHECK(std::vector<double>(row.weights[0].begin(), row.weights[0].begin() + 6) ==
        std::vector<double>{0, 0, 0, 0, 1, 0});
  CHECK(std::vector<double>(row.weights[1].begin(), row.weights[1].begin() + 6) ==
        std::vector<double>{0, 1, 1, 1, 0, 1});
  CHECK(golden.traces[1][0][40 * 32 + 5] == 0.23223807736202687);
  CHECK(std::isnan(golden.traces[1][1][40 * 32 + 5]));
  CHECK(golden.loss == 11.688588215168675);
  CHECK(golden.gradients.at("model.layers.1.self_attn.q_proj.weight")[3 * 32 + 7] ==
        -0.0011013121456642473);
  CHECK(golden.train_parameters.at("model.norm.weight")[31] == 1.1315306332592456);
  CHECK(std::isnan(golden.traces[0][1][0]));  // no clean row is read after the last layer
  CHECK(golden.loss == golden.diffusion_loss);
  CHECK(golden.aux_loss == 0);
  CHECK(golden.gradients.size() == 26);
  CHECK(golden.gradients.at("model.layers.1.self_attn.k_proj.bias").size() == 16);
  REQUIRE(golden.train_losses.size() == 3);
  CHECK(golden.train_losses[0] == golden.loss);
  CHECK(golden.train_losses[2] < golden.loss);
  CHECK(golden.train_parameters.size() == 26);
  CHECK(golden.train_parameters.at("model.embed_tokens.weight").size() == 66 * 32);

  objective.views = Views::one;
  CHECK_THROWS_WITH(read_golden(folder + "fast_dllm_v2_views_shift", objective),
                    Contains("golden.h5") && Contains("1 views"));
  CHECK_THROWS_WITH(read_golden(folder, objective), Contains("golden.h5"));
}

TEST_CASE("a golden case with an autoregressive term", "[golden]") {
  Objective objective;
  objective.ar_loss_weight = 1;
  const Golden golden = read_golden(folder + "nemotron_labs_causal_ar", objective);
  double pairs = 0;
  for (const CorruptedRow& row : golden.rows) {
    REQUIRE(row.ar_weights.size() == row.clean.tokens.size());
    for (const double weight : row.ar_weights) pairs += weight;
  }
  CHECK(pairs == static_cast<double>(golden.ar_normalizer));
  CHECK(golden.loss == Approx(0.3 * golden.diffusion_loss + golden.ar_loss).epsilon(1e-14));
  CHECK(golden.gradients.contains("diffusion_head.weight"));
}

TEST_CASE("golden mixtures have a balance term and fixed biases", "[golden]") {
  Objective objective;
  const Golden balance = read_golden(folder + "qwen3_moe_balance", objective);
  CHECK(balance.aux_loss > 1);
  CHECK(balance.loss == Approx(balance.diffusion_loss + 0.01 * balance.aux_loss).epsilon(1e-14));
  CHECK(balance.gradients.size() == 4 * (9 + 8 * 3) + 3);

  const Golden groups = read_golden(folder + "llada2_moe_groups", objective);
  CHECK(groups.loss == groups.diffusion_loss);
  const std::vector<double>& bias = groups.gradients.at("model.layers.2.mlp.gate.expert_bias");
  CHECK(bias == std::vector<double>(8, 0.0));
  CHECK(groups.train_parameters.at("model.layers.2.mlp.gate.expert_bias") != bias);
  CHECK(groups.gradients.at("model.layers.0.attention.query_key_value.weight").size() ==
        (4 + 2 * 2) * 16 * 32);
}
