// SPDX-License-Identifier: Apache-2.0
// The flat range: places, views and random initialisation.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <set>

#include "kernels/error.h"
#include "model/parameters.h"

using namespace bdlm;

namespace {

/// Odd sizes, so that nothing is aligned by luck.
ModelConfig odd(bool tied, bool bias, bool norm) {
  ModelConfig config;
  config.vocab_size = 13;
  config.hidden_size = 10;
  config.intermediate_size = 7;
  config.num_hidden_layers = 2;
  config.num_attention_heads = 6;
  config.num_key_value_heads = 3;
  config.head_dim = 4;
  config.tie_word_embeddings = tied;
  config.attention_bias = bias;
  config.qk_norm = norm;
  complete(config);
  return config;
}

double* address(const Tensor& tensor) { return tensor.as<double>(); }

}  // namespace

TEST_CASE("every tensor has its own place, groups are aligned", "[parameters]") {
  for (const bool flag : {false, true}) {
    const ModelConfig config = odd(flag, flag, flag);
    const ParameterLayout layout = layout_of(config);
    std::int64_t end = 0;
    std::set<std::string> names;
    for (const Parameter& tensor : layout.tensors) {
      INFO(tensor.name);
      CHECK(tensor.offset >= end);
      CHECK(tensor.offset - end < 64);
      const bool continues = tensor.name.find("k_proj") != std::string::npos ||
                             tensor.name.find("v_proj") != std::string::npos ||
                             tensor.name.find("up_proj") != std::string::npos;
      CHECK((continues ? tensor.offset - end : tensor.offset % 64) == 0);
      CHECK(tensor.vector ==
            (tensor.name.find("norm") != std::string::npos || tensor.name.ends_with(".bias")));
      CHECK(&layout.at(tensor.name) == &tensor);
      names.insert(tensor.name);
      end = tensor.offset + tensor.size();
    }
    CHECK(names.size() == layout.tensors.size());
    CHECK(layout.size % 64 == 0);
    CHECK(layout.size - end < 64);
    CHECK(names.contains("lm_head.weight") == !flag);
    CHECK(names.contains("model.layers.1.self_attn.v_proj.bias") == flag);
    CHECK(names.contains("model.layers.0.self_attn.k_norm.weight") == flag);
    CHECK_THROWS_AS(layout.at("model.layers.2.mlp.up_proj.weight"), Error);
  }
}

TEST_CASE("published models have their published number of parameters", "[parameters]") {
  ModelConfig qwen3;  // Qwen3-0.6B
  qwen3.vocab_size = 151936;
  qwen3.hidden_size = 1024;
  qwen3.intermediate_size = 3072;
  qwen3.num_hidden_layers = 28;
  qwen3.num_attention_heads = 16;
  qwen3.num_key_value_heads = 8;
  qwen3.head_dim = 128;
  qwen3.qk_norm = qwen3.tie_word_embeddings = true;
  CHECK(layout_of(qwen3).count() == 596'049'920);

  ModelConfig qwen2 = qwen3;  // Qwen2.5-1.5B
  qwen2.hidden_size = 1536;
  qwen2.intermediate_size = 8960;
  qwen2.num_attention_heads = 12;
  qwen2.num_key_value_heads = 2;
  qwen2.qk_norm = false;
  qwen2.attention_bias = true;
  CHECK(layout_of(qwen2).count() == 1'543'714'304);

  ModelConfig nemotron;  // Nemotron-Labs-Diffusion-14B: beyond 32-bit counts
  nemotron.vocab_size = 131072;
  nemotron.hidden_size = 5120;
  nemotron.intermediate_size = 16384;
  nemotron.num_hidden_layers = 40;
  nemotron.num_attention_heads = 32;
  nemotron.num_key_value_heads = 8;
  nemotron.head_dim = 128;
  CHECK(layout_of(nemotron).count() == 13'506'073'600);
  CHECK(layout_of(nemotron).tensors.size() == 363);
}

TEST_CASE("views point at their tensors, stacked ones as one matrix", "[parameters]") {
  const ModelConfig config = odd(false, true, true);
  const ParameterLayout layout = layout_of(config);
  std::vector<double> memory(static_cast<std::size_t>(layout.size));
  const Tensor flat{memory.data(), 1, layout.size, layout.size, DType::f64};
  const ParameterMemory place = in_flat(flat);

  const auto check = [&](const Tensor& tensor, const std::string& name, std::int64_t rows,
                         std::int64_t cols) {
    INFO(name);
    CHECK(address(tensor) == memory.data() + layout.at(name).offset);
    CHECK(tensor.rows == rows);
    CHECK(tensor.cols == cols);
    CHECK(tensor.contiguous());
  };
  check(view_embedding(layout, place), "model.embed_tokens.weight", 13, 10);
  const HeadView head = view_head(config, layout, place, place);
  check(head.norm, "model.norm.weight", 1, 10);
  check(head.head, "lm_head.weight", 13, 10);
  const LayerTensors layer = view_layer(config, layout, 1, place);
  const std::string base = "model.layers.1.";
  check(layer.input_norm, base + "input_layernorm.weight", 1, 10);
  check(layer.q, base + "self_attn.q_proj.weight", 24, 10);
  check(layer.kv, base + "self_attn.k_proj.weight", 24, 10);
  check(layer.kv.slice_rows(12, 12), base + "self_attn.v_proj.weight", 12, 10);
  check(layer.q_bias, base + "self_attn.q_proj.bias", 1, 24);
  check(layer.kv_bias, base + "self_attn.k_proj.bias", 1, 24);
  check(layer.q_norm, base + "self_attn.q_norm.weight", 1, 4);
  check(layer.k_norm, base + "self_attn.k_norm.weight", 1, 4);
  check(layer.o, base + "self_attn.o_proj.weight", 10, 24);
  check(layer.post_norm, base + "post_attention_layernorm.weight", 1, 10);
  check(layer.gate_up, base + "mlp.gate_proj.weight", 14, 10);
  check(layer.gate_up.slice_rows(7, 7), base + "mlp.up_proj.weight", 7, 10);
  check(layer.down, base + "mlp.down_proj.weight", 10, 7);
  // q, k and v are one matrix.
  CHECK(address(layer.kv) == address(layer.q) + layer.q.size());
  CHECK(address(layer.kv_bias) == address(layer.q_bias) + layer.q_bias.size());

  const ModelConfig bare = odd(true, false, false);
  const ParameterLayout less = layout_of(bare);
  CHECK(view_head(bare, less, place, place).head.data == view_embedding(less, place).data);
  CHECK(view_layer(bare, less, 0, place).q_bias.empty());
  CHECK(view_layer(bare, less, 0, place).q_norm.empty());
  CHECK_THROWS_AS(view_layer(bare, less, 2, place), Error);  // there is no such layer
}

TEST_CASE("a tied head is in the memory of the embedding and the norm in that of its own unit",
          "[parameters]") {
  const ModelConfig config = odd(true, false, false);
  const ParameterLayout layout = layout_of(config);
  const auto memory_of = [&](std::vector<double>& memory, std::size_t unit) {
    return [&memory, &layout, unit](Holders holders, FlatRange range) -> Tensor {
      const FlatRange part = layout.units[unit][static_cast<std::size_t>(holders)];
      require(range.begin >= part.begin && range.begin + range.count <= part.begin + part.count,
              "unit {} was asked for memory of another", unit);
      return {memory.data() + (range.begin - part.begin), 1, range.count, range.count, DType::f64};
    };
  };
  std::vector<double> first(1000), last(1000);
  const HeadView head = view_head(config, layout, memory_of(last, layout.units.size() - 1),
                                  memory_of(first, 0));
  CHECK(address(head.norm) == last.data());
  CHECK(address(head.head) == first.data());
}

TEST_CASE("initial values do not depend on who makes which part", "[parameters]") {
  const ModelConfig config = odd(false, true, true);
  const ParameterLayout layout = layout_of(config);
  std::vector<double> whole(static_cast<std::size_t>(layout.size), -9.0);
  initialize(config, layout, 7, 0, layout.size, whole.data());
  for (const std::int64_t step : {1, 37, 64}) {
    std::vector<double> parts(whole.size(), -9.0);
    for (std::int64_t begin = 0; begin < layout.size; begin += step) {
      const std::int64_t count = std::min(step, layout.size - begin);
      initialize(config, layout, 7, begin, count, parts.data() + begin);
    }
    CHECK(parts == whole);
  }

  std::vector<char> inside(whole.size(), 0);
  for (const Parameter& tensor : layout.tensors) {
    for (std::int64_t i = tensor.offset; i < tensor.offset + tensor.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      inside[at] = 1;
      if (tensor.vector) CHECK(whole[at] == (tensor.name.ends_with(".bias") ? 0 : 1));
      if (!tensor.vector) CHECK(whole[at] != 0);
    }
  }
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (!inside[i]) CHECK(whole[i] == 0);
  }

  std::vector<double> other(whole.size());
  initialize(config, layout, 8, 0, layout.size, other.data());
  CHECK(other[0] != whole[0]);
  CHECK_THROWS_AS(initialize(config, layout, 7, 1, layout.size, other.data()), Error);
}

TEST_CASE("a tensor starts alike whatever else the model has", "[parameters]") {
  ModelConfig shallow = odd(false, false, false), deep = odd(true, true, true);
  deep.num_hidden_layers = 5;
  const ParameterLayout a = layout_of(shallow), b = layout_of(deep);
  std::vector<double> x(120), y(120);
  const std::string name = "model.layers.1.self_attn.k_proj.weight";
  initialize(shallow, a, 3, a.at(name).offset, 120, x.data());
  initialize(deep, b, 3, b.at(name).offset, 120, y.data());
  CHECK(x == y);
  initialize(deep, b, 3, b.at("model.layers.0.self_attn.k_proj.weight").offset, 120, y.data());
  CHECK(x != y);
}

TEST_CASE("initial matrices are normal with the configured deviation", "[parameters]") {
  ModelConfig config = odd(true, false, false);
  config.vocab_size = 20'000;  // 200 000 numbers
  config.initializer_range = 0.05;
  const ParameterLayout layout = layout_of(config);
  std::vector<double> x(200'000);
  initialize(config, layout, 11, 0, 200'000, x.data());
  double moments[5] = {};
  double neighbours = 0;  // the two halves of one transform must not be correlated either
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double z = x[i] / 0.05;
    for (int power = 1; power <= 4; ++power) moments[power] += std::pow(z, power) / 2e5;
    if (i % 2) neighbours += z * x[i - 1] / 0.05 / 1e5;
  }
  // Five standard errors of each mean.
  CHECK(std::abs(moments[1]) < 0.0112);
  CHECK(std::abs(moments[2] - 1) < 0.0158);
  CHECK(std::abs(moments[3]) < 0.0434);
  CHECK(std::abs(moments[4] - 3) < 0.11);
  CHECK(std::abs(neighbours) < 0.0158);
}
