// SPDX-License-Identifier: Apache-2.0
// What complete() refuses, and that it tells everything at once.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/error.h"
#include "model/config.h"

using namespace bdlm;
using Catch::Contains;

namespace {

ModelConfig small() {
  ModelConfig config;
  config.vocab_size = 66;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 3;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  return config;
}

/// What complete() says of `small` after the change; empty: nothing.
template <class Change>
std::string complaint(Change change) {
  ModelConfig config = small();
  change(config);
  try {
    complete(config);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace

TEST_CASE("complete fills head_dim and leaves a stated one", "[config]") {
  ModelConfig config = small();
  complete(config);
  CHECK(config.head_dim == 8);
  CHECK(config.query_width() == 32);
  CHECK(config.kv_width() == 32);
  config.head_dim = 16;
  complete(config);
  CHECK(config.head_dim == 16);
}

TEST_CASE("each size that cannot work is refused by name", "[config]") {
  CHECK(complaint([](ModelConfig&) {}).empty());
  const auto names = [](auto change, const std::string& name) {
    CHECK_THAT(complaint(change), Contains("model." + name));
  };
  names([](ModelConfig& c) { c.vocab_size = 0; }, "vocab_size");
  names([](ModelConfig& c) { c.vocab_size = std::int64_t{1} << 31; }, "vocab_size");
  names([](ModelConfig& c) { c.hidden_size = -32; }, "hidden_size");
  names([](ModelConfig& c) { c.hidden_size = 33; }, "hidden_size");
  names([](ModelConfig& c) { c.intermediate_size = 0; }, "intermediate_size");
  names([](ModelConfig& c) { c.num_hidden_layers = 0; }, "num_hidden_layers");
  names([](ModelConfig& c) { c.num_attention_heads = 0; }, "num_attention_heads");
  names([](ModelConfig& c) { c.num_key_value_heads = 3; }, "num_attention_heads");
  names([](ModelConfig& c) { c.head_dim = -1; }, "head_dim");
  names([](ModelConfig& c) { c.head_dim = 7; }, "head_dim");
  names([](ModelConfig& c) { c.rms_norm_eps = 0; }, "rms_norm_eps");
  names([](ModelConfig& c) { c.rope_theta = 0; }, "rope_theta");
  names([](ModelConfig& c) { c.rope_theta = std::nan(""); }, "rope_theta");
  names([](ModelConfig& c) { c.partial_rotary_factor = 1.5; }, "partial_rotary_factor");
  names([](ModelConfig& c) { c.partial_rotary_factor = 0.4; }, "head_dim");  // 3 channels
  names([](ModelConfig& c) { c.initializer_range = -1; }, "initializer_range");
  names([](ModelConfig& c) { c.mask_token_id = 66; }, "mask_token_id");
  CHECK(complaint([](ModelConfig& c) { c.mask_token_id = 65; }).empty());
}

TEST_CASE("rope scaling values are checked for their type", "[config]") {
  const auto with = [](RopeScaling scaling) {
    return complaint([&](ModelConfig& c) { c.rope_scaling = scaling; });
  };
  const RopeScaling yarn{
      .type = RopeType::yarn, .factor = 4, .original_max_position_embeddings = 16};
  const RopeScaling llama3{
      .type = RopeType::llama3, .factor = 8, .original_max_position_embeddings = 16};
  CHECK(with(yarn).empty());
  CHECK(with(llama3).empty());
  RopeScaling s = yarn;
  s.original_max_position_embeddings = 0;
  CHECK_THAT(with(s), Contains("original_max_position_embeddings"));
  s = yarn;
  s.factor = 0.5;
  CHECK_THAT(with(s), Contains("rope_scaling.factor"));
  s = yarn;
  s.beta_slow = 64;
  CHECK_THAT(with(s), Contains("beta_slow"));
  s = yarn;
  s.mscale = -1;
  CHECK_THAT(with(s), Contains("mscale"));
  s = llama3;
  s.low_freq_factor = 4;
  CHECK_THAT(with(s), Contains("low_freq_factor"));
  s = {};
  s.llama_4_scaling_beta = 0.1;  // divides by the original length, also without scaling
  CHECK_THAT(with(s), Contains("original_max_position_embeddings"));
}

TEST_CASE("all findings come in one error, a line each", "[config]") {
  const std::string text = complaint([](ModelConfig& c) {
    c.vocab_size = 0;
    c.num_key_value_heads = 3;
    c.layer_types = {"linear_attention", "linear_attention", "full_attention"};
    c.rope_theta = -1;
  });
  CHECK(std::ranges::count(text, '\n') == 3);  // the unknown layer type once
  CHECK_THAT(text, Contains("vocab_size") && Contains("num_key_value_heads") &&
                       Contains("'linear_attention'") && Contains("rope_theta"));
}

TEST_CASE("windows follow layer_types", "[config]") {
  ModelConfig config = small();
  CHECK(config.windows() == std::vector<std::int64_t>{0, 0, 0});
  config.sliding_window = 11;
  CHECK(config.windows() == std::vector<std::int64_t>{0, 0, 0});
  config.layer_types = {"sliding_attention", "full_attention", "sliding_attention"};
  complete(config);
  CHECK(config.windows() == std::vector<std::int64_t>{11, 0, 11});
  CHECK_THAT(complaint([](ModelConfig& c) { c.layer_types = {"full_attention"}; }),
             Contains("layer_types"));
  CHECK_THAT(complaint([&](ModelConfig& c) { c.layer_types = config.layer_types; }),
             Contains("sliding_window"));
}
