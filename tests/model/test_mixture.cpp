// SPDX-License-Identifier: Apache-2.0
// Mixtures of experts: config.json of both kinds, names on disk, sizes that cannot work, counts.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <numeric>

#include "model/families.h"
#include "model/layer_costs.h"
#include "model/safetensors.h"
#include "model/safetensors_write.h"
#include "tests/model/config_document.h"
#include "tests/model/test_folder.h"

using namespace bdlm;
using Catch::Contains;
using nlohmann::json;
using test::error_of;
using test::golden;
using test::read;

namespace {

json small(const std::string& type) {
  return {{"model_type", type},
          {"vocab_size", 66},
          {"hidden_size", 32},
          {"intermediate_size", 48},
          {"num_hidden_layers", 3},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"head_dim", 8},
          {"num_experts", 12},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 16},
          {"n_group", 4},
          {"topk_group", 2}};
}

std::string refusal(const std::string& type, const std::string& key, const json& value) {
  json document = small(type);
  document[key] = value;
  return error_of([&] { read(document); });
}

/// What complete() says of a family's model after the change.
template <class Change>
std::string complaint(const std::string& family, Change change) {
  ModelConfig config = family_defaults(family);
  config.vocab_size = 66;
  config.hidden_size = 32;
  config.intermediate_size = 48;
  config.num_hidden_layers = 3;
  config.num_attention_heads = config.num_key_value_heads = 4;
  if (family != "llama") {
    config.num_experts = 16;
    config.num_experts_per_tok = 2;
    config.moe_intermediate_size = 8;
  }
  change(config);
  return error_of([&] { complete(config); });
}

ModelConfig llada2(std::int64_t layers, std::int64_t hidden, std::int64_t width,
                   std::int64_t expert, std::int64_t heads) {
  ModelConfig config = family_defaults("llada2_moe");
  config.vocab_size = 157184;
  config.hidden_size = hidden;
  config.intermediate_size = width;
  config.num_hidden_layers = layers;
  config.num_attention_heads = heads;
  config.num_key_value_heads = 4;
  config.head_dim = 128;
  config.num_experts = 256;
  config.num_experts_per_tok = 8;
  config.moe_intermediate_size = expert;
  config.num_shared_experts = 1;
  config.first_k_dense_replace = 1;
  complete(config);
  return config;
}

ModelConfig qwen3_30b() {
  ModelConfig config = family_defaults("qwen3_moe");
  config.vocab_size = 151936;
  config.hidden_size = 2048;
  config.intermediate_size = 6144;
  config.num_hidden_layers = 48;
  config.num_attention_heads = 32;
  config.num_key_value_heads = 4;
  config.head_dim = 128;
  config.num_experts = 128;
  config.num_experts_per_tok = 8;
  config.moe_intermediate_size = 768;
  complete(config);
  return config;
}

}  // namespace

TEST_CASE("the golden mixtures are read as they are meant", "[mixture]") {
  const ModelConfig qwen = read_hf_config(golden + "qwen3_moe_balance");
  CHECK(qwen.family == "qwen3_moe");
  CHECK(qwen.qk_norm);
  CHECK(qwen.num_experts == 8);
  CHECK(qwen.num_experts_per_tok == 2);
  CHECK(qwen.moe_intermediate_size == 16);
  CHECK(qwen.norm_topk_prob);
  CHECK(qwen.sparse(0));
  const Router softmax = qwen.router();
  CHECK_FALSE(softmax.sigmoid);
  CHECK(softmax.normalize);
  CHECK(softmax.groups == 1);
  CHECK(softmax.scaling == 1);

  const ModelConfig llada = read_hf_config(golden + "llada2_moe_groups");
  CHECK(llada.family == "llada2_moe");
  CHECK(llada.router_bias);
  CHECK(llada.qk_norm);
  CHECK_FALSE(llada.attention_bias);
  CHECK(llada.partial_rotary_factor == 0.5);
  CHECK(llada.shared_width() == 16);
  CHECK_FALSE(llada.sparse(0));
  CHECK(llada.sparse(1));
  const Router sigmoid = llada.router();
  CHECK(sigmoid.sigmoid);
  CHECK(sigmoid.experts == 8);
  CHECK(sigmoid.chosen == 2);
  CHECK(sigmoid.groups == 4);
  CHECK(sigmoid.best_groups == 2);
  CHECK(sigmoid.scaling == 2.5);
}

TEST_CASE("what a mixture's config.json leaves out", "[mixture]") {
  CHECK_FALSE(read(small("qwen3_moe")).norm_topk_prob);  // as in transformers
  CHECK(read(small("qwen3_moe")).n_group == 1);          // no field of this family
  CHECK(read(small("sdar_moe")).num_experts == 12);
  json document = small("llada2_moe");
  const ModelConfig config = read(document);
  CHECK(config.norm_topk_prob);
  CHECK(config.router_bias);
  CHECK(config.routed_scaling_factor == 2.5);
  CHECK(config.partial_rotary_factor == 0.5);
  CHECK(config.num_shared_experts == 0);
  CHECK(config.first_k_dense_replace == 0);
  document["use_qkv_bias"] = true;
  document["use_qk_norm"] = false;
  document["moe_router_enable_expert_bias"] = false;
  CHECK(read(document).attention_bias);
  CHECK_FALSE(read(document).qk_norm);
  CHECK_FALSE(read(document).router_bias);
  document.erase("n_group");
  document.erase("topk_group");
  document["num_experts"] = 16;
  CHECK(read(document).n_group == 8);
  CHECK(read(document).topk_group == 4);
}

TEST_CASE("mixtures that are not supported are refused by name", "[mixture]") {
  CHECK_THAT(refusal("qwen3_moe", "decoder_sparse_step", 2), Contains("decoder_sparse_step 2"));
  CHECK_THAT(refusal("qwen3_moe", "mlp_only_layers", {0}), Contains("mlp_only_layers"));
  CHECK(refusal("qwen3_moe", "mlp_only_layers", json::array()).empty());
  CHECK(refusal("qwen3_moe", "router_aux_loss_coef", 0.1).empty());  // the run file's to say
  CHECK_THAT(refusal("qwen3_moe", "num_experts", nullptr), Contains("'num_experts' is missing"));
  CHECK_THAT(refusal("llada2_moe", "score_function", "softmax"), Contains("'softmax'"));
  CHECK_THAT(refusal("llada2_moe", "use_bias", true), Contains("use_bias"));
  CHECK_THAT(refusal("llada2_moe", "norm_head", true), Contains("norm_head"));
}

TEST_CASE("experts and groups that cannot work are told with what can", "[mixture]") {
  const auto says = [](const std::string& family, auto change, const std::string& sentence) {
    CHECK_THAT(complaint(family, change), Contains(sentence));
  };
  CHECK(complaint("llada2_moe", [](ModelConfig&) {}).empty());
  CHECK(complaint("qwen3_moe", [](ModelConfig&) {}).empty());
  says(
      "llama", [](auto& c) { c.num_experts = 4; },
      "model_type llama has no experts: use qwen3_moe");
  says(
      "llama", [](auto& c) { c.freeze_router = true; }, "has no router");
  says(
      "qwen3_moe", [](auto& c) { c.num_experts = 0; }, "model.num_experts is 0");
  says(
      "qwen3_moe", [](auto& c) { c.num_experts_per_tok = 0; }, "num_experts_per_tok is 0");
  says(
      "qwen3_moe", [](auto& c) { c.num_experts_per_tok = 17; },
      "17, more than model.num_experts 16");
  says(
      "qwen3_moe", [](auto& c) { c.moe_intermediate_size = 0; }, "moe_intermediate_size is 0");
  says(
      "qwen3_moe", [](auto& c) { c.num_shared_experts = 1; }, "num_shared_experts is not for");
  says(
      "qwen3_moe", [](auto& c) { c.n_group = 2; }, "n_group is not for");
  says(
      "llada2_moe", [](auto& c) { c.n_group = 5; }, "these do: 1, 2, 4, 8");
  says(
      "llada2_moe", [](auto& c) { c.n_group = 0; }, "n_group is 0");
  says(
      "llada2_moe", [](auto& c) { c.n_group = 16; }, "groups of 1 of the 16 experts");
  says(
      "llada2_moe", [](auto& c) { c.topk_group = 9; }, "between 1 and model.n_group 8");
  says(
      "llada2_moe", [](auto& c) { c.num_experts_per_tok = 9; },
      "4 of 8 groups have only 8 experts");
  says(
      "llada2_moe", [](auto& c) { c.first_k_dense_replace = 4; }, "first_k_dense_replace is 4");
  says(
      "llada2_moe", [](auto& c) { c.routed_scaling_factor = 0; }, "routed_scaling_factor is 0");
  says(
      "llada2_moe", [](auto& c) { c.num_shared_experts = -1; }, "num_shared_experts is -1");
}

TEST_CASE("a mixture's written config.json is read back as the same model", "[mixture]") {
  std::vector<ModelConfig> configs{read(small("sdar_moe")), read(small("llada2_moe")), qwen3_30b()};
  configs.back().norm_topk_prob = false;
  ModelConfig odd = read(small("llada2_moe"));
  odd.router_bias = odd.norm_topk_prob = odd.qk_norm = false;
  odd.attention_bias = true;
  odd.partial_rotary_factor = 1;
  odd.n_group = odd.topk_group = 1;
  odd.num_shared_experts = 2;
  odd.first_k_dense_replace = 3;
  odd.routed_scaling_factor = 1;
  configs.push_back(odd);
  for (const ModelConfig& config : configs) {
    const json document = hf_config(config);
    INFO(document.dump());
    const ModelConfig back = read(document);
    CHECK(hf_config(back) == document);
    CHECK(back.num_experts == config.num_experts);
    CHECK(back.num_experts_per_tok == config.num_experts_per_tok);
    CHECK(back.moe_intermediate_size == config.moe_intermediate_size);
    CHECK(back.num_shared_experts == config.num_shared_experts);
    CHECK(back.first_k_dense_replace == config.first_k_dense_replace);
    CHECK(back.router_sigmoid == config.router_sigmoid);
    CHECK(back.router_bias == config.router_bias);
    CHECK(back.norm_topk_prob == config.norm_topk_prob);
    CHECK(back.n_group == config.n_group);
    CHECK(back.topk_group == config.topk_group);
    CHECK(back.routed_scaling_factor == config.routed_scaling_factor);
    CHECK(back.qk_norm == config.qk_norm);
    CHECK(back.attention_bias == config.attention_bias);
    CHECK(back.partial_rotary_factor == config.partial_rotary_factor);
  }
}

TEST_CASE("LLaDA2 has its own names and one tensor for query key and value", "[mixture]") {
  const ModelConfig config = read_hf_config(golden + "llada2_moe_groups");
  std::vector<DiskTensor> disk = disk_tensors(config, layout_of(config));
  // Three layers of 6 tensors, a dense MLP, two mixtures, and three at the ends.
  CHECK(disk.size() == 3 * 6 + 3 + 2 * (2 + 3 + 8 * 3) + 3);
  const auto parts = [&](const std::string& name) {
    const auto found = std::ranges::find(disk, name, &DiskTensor::name);
    return found == disk.end() ? std::vector<std::string>{} : found->parts;
  };
  using Names = std::vector<std::string>;
  CHECK(parts("model.word_embeddings.weight") == Names{"model.embed_tokens.weight"});
  const std::string canonical = "model.layers.1.self_attn.", own = "model.layers.1.attention.";
  CHECK(parts(own + "query_key_value.weight") == Names{canonical + "q_proj.weight",
                                                       canonical + "k_proj.weight",
                                                       canonical + "v_proj.weight"});
  CHECK(parts(own + "dense.weight") == Names{canonical + "o_proj.weight"});
  CHECK(parts(own + "query_layernorm.weight") == Names{canonical + "q_norm.weight"});
  CHECK(parts(own + "key_layernorm.weight") == Names{canonical + "k_norm.weight"});
  for (const char* same :
       {"layers.1.post_attention_layernorm.weight", "layers.1.mlp.gate.expert_bias",
        "layers.1.mlp.experts.7.down_proj.weight", "layers.2.mlp.shared_experts.up_proj.weight",
        "layers.0.mlp.gate_proj.weight", "norm.weight"}) {
    const std::string name = std::string("model.") + same;
    CHECK(parts(name) == Names{name});
  }
  CHECK(parts("lm_head.weight") == Names{"lm_head.weight"});

  ModelConfig biased = config;
  biased.attention_bias = true;
  disk = disk_tensors(biased, layout_of(biased));
  CHECK(parts(own + "query_key_value.bias").size() == 3);
}

TEST_CASE("published mixtures have their published number of parameters", "[mixture]") {
  CHECK(layout_of(qwen3_30b()).count() == 30'532'122'624);
  // LLaDA2's counts include the routers' biases, which are buffers.
  CHECK(layout_of(llada2(20, 2048, 5120, 512, 16)).count() == 16'255'643'392);
  CHECK(layout_of(llada2(32, 4096, 9216, 1024, 32)).count() == 102'889'705'216);
}

TEST_CASE("a sparse layer costs what a row meets of it", "[mixture]") {
  const ModelConfig mini = llada2(20, 2048, 5120, 512, 16);
  const double attention = 2048.0 * (2 * 2048 + 1024);
  CHECK(layer_weights(mini, 0) == attention + 2048.0 * 3 * 5120);
  CHECK(layer_weights(mini, 1) == attention + 2048.0 * (3 * 512 * 9 + 256));
  ModelConfig windowed = mini;
  windowed.sliding_window = 100;
  windowed.layer_types.assign(20, "full_attention");
  windowed.layer_types[3] = "sliding_attention";
  const auto costs = layer_costs(windowed, 1000);
  REQUIRE(costs.size() == 20);
  CHECK(costs[2] - costs[3] == 12.0 * 2048 * 900);
  CHECK(costs[0] == 6 * layer_weights(mini, 0) + 12.0 * 2048 * 1000);
  CHECK(layer_costs(mini)[1] == 6 * layer_weights(mini, 1));
  CHECK(head_cost(mini) == 1.5 * 2048 * 157184);
  CHECK(embedding_cost(mini) < layer_costs(mini)[1] / 1000);
}

TEST_CASE("eighteen thousand tensors are written checked and read", "[mixture]") {
  ModelConfig config = qwen3_30b();  // the shape of its folder, with small tensors
  config.vocab_size = 8;
  config.hidden_size = 2;
  config.moe_intermediate_size = 1;
  config.num_attention_heads = config.num_key_value_heads = 1;
  config.head_dim = 2;
  const ParameterLayout layout = layout_of(config);
  std::vector<SafetensorsTensor> tensors;
  for (const DiskTensor& disk : disk_tensors(config, layout)) {
    const Parameter& tensor = layout.at(disk.name);
    tensors.push_back(
        {disk.name,
         tensor.vector ? std::vector{tensor.cols} : std::vector{tensor.rows, tensor.cols},
         DType::f64, [&](std::int64_t begin, std::int64_t count, double* out) {
           std::iota(out, out + count, static_cast<double>(tensor.offset + begin));
         }});
  }
  CHECK(tensors.size() == 48 * (9 + 3 * 128) + 3);
  const test::Folder folder;
  write_safetensors(folder.file("model.safetensors"), tensors);
  const SafetensorsFolder files(folder.path());
  check_tensors(files, config);
  std::vector<double> flat(static_cast<std::size_t>(layout.size));
  for (std::int64_t begin = 0; begin < layout.size; begin += 1000) {
    read_parameters(files, config, layout, begin, std::min<std::int64_t>(1000, layout.size - begin),
                    flat.data() + begin);
  }
  std::size_t wrong = 0;
  for (const Parameter& tensor : layout.tensors)
    for (std::int64_t i = tensor.offset; i < tensor.offset + tensor.size(); ++i)
      wrong += flat[static_cast<std::size_t>(i)] != static_cast<double>(i);
  CHECK(wrong == 0);
}
