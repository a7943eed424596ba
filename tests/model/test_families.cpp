// SPDX-License-Identifier: Apache-2.0
// config.json of every family: read, refused, written and read back; names on disk.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "model/families.h"
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
  return {{"model_type", type},        {"vocab_size", 66},       {"hidden_size", 32},
          {"intermediate_size", 48},   {"num_hidden_layers", 3}, {"num_attention_heads", 4},
          {"num_key_value_heads", 2},  {"head_dim", 8},          {"rms_norm_eps", 1e-5},
          {"torch_dtype", "bfloat16"}, {"rope_theta", 10000.0}};
}

/// What is said of `small` with one field changed.
std::string refusal(const std::string& type, const std::string& key, const json& value) {
  json document = small(type);
  document[key] = value;
  return error_of([&] { read(document); });
}

}  // namespace

TEST_CASE("the golden folders' config.json are read as they are meant", "[families]") {
  const ModelConfig qwen2 = read_hf_config(golden + "fast_dllm_v2_views_shift");
  CHECK(qwen2.family == "qwen2");
  CHECK(qwen2.vocab_size == 66);
  CHECK(qwen2.hidden_size == 32);
  CHECK(qwen2.intermediate_size == 48);
  CHECK(qwen2.num_hidden_layers == 2);
  CHECK(qwen2.num_attention_heads == 4);
  CHECK(qwen2.num_key_value_heads == 2);
  CHECK(qwen2.head_dim == 8);
  CHECK(qwen2.rms_norm_eps == 1e-6);
  CHECK(qwen2.rope_theta == 1e4);
  CHECK(qwen2.attention_bias);
  CHECK(qwen2.tie_word_embeddings);
  CHECK_FALSE(qwen2.qk_norm);
  CHECK(qwen2.max_position_embeddings == 4096);
  CHECK_FALSE(qwen2.mask_token_id.has_value());

  const ModelConfig qwen3 = read_hf_config(golden + "qwen3_packed_prompts");
  CHECK(qwen3.qk_norm);
  CHECK_FALSE(qwen3.attention_bias);
  CHECK(qwen3.head_dim == 16);

  const ModelConfig nemotron = read_hf_config(golden + "nemotron_labs_causal_ar");
  CHECK(nemotron.family == "nemotron_labs_diffusion");
  CHECK(nemotron.rope_theta == 1e6);
  CHECK(nemotron.rope_scaling.type == RopeType::yarn);
  CHECK(nemotron.rope_scaling.factor == 4);
  CHECK(nemotron.rope_scaling.original_max_position_embeddings == 16);
  CHECK(nemotron.rope_scaling.beta_fast == 4);
  CHECK(nemotron.rope_scaling.mscale == 1);
  CHECK(nemotron.rope_scaling.llama_4_scaling_beta == 0.1);
  CHECK(nemotron.mask_token_id == 65);

  const ModelConfig llama3 = read_hf_config(golden + "llama3_rope_one_block_rows");
  CHECK(llama3.rope_scaling.type == RopeType::llama3);
  CHECK(llama3.rope_scaling.factor == 8);
  CHECK(llama3.rope_scaling.high_freq_factor == 4);
  CHECK(llama3.rope_theta == 5e5);

  const ModelConfig sliding = read_hf_config(golden + "sliding_window");
  CHECK(sliding.windows() == std::vector<std::int64_t>{11, 0, 11});
}

TEST_CASE("old and new places of the rotary settings", "[families]") {
  json document = small("llama");
  document.erase("rope_theta");
  document["rope_parameters"] = {{"rope_theta", 5e5}, {"rope_type", "default"}};
  CHECK(read(document).rope_theta == 5e5);
  CHECK(read(document).rope_scaling.type == RopeType::plain);

  document = small("qwen3");
  document["rope_scaling"] = {{"type", "yarn"}, {"factor", 4.0}};
  document["max_position_embeddings"] = 40960;
  const ModelConfig old = read(document);
  CHECK(old.rope_scaling.type == RopeType::yarn);
  CHECK(old.rope_scaling.original_max_position_embeddings == 40960);
  CHECK(old.rope_scaling.beta_fast == 32);

  document["rope_scaling"] = nullptr;
  document["partial_rotary_factor"] = 0.5;
  CHECK(read(document).rope_scaling.type == RopeType::plain);
  CHECK(read(document).rotary_dim() == 4);
}

TEST_CASE("fields that a family leaves out", "[families]") {
  json document = small("llama");
  document.erase("head_dim");
  document.erase("num_key_value_heads");
  CHECK(read(document).head_dim == 8);
  CHECK(read(document).num_key_value_heads == 4);
  document["head_dim"] = nullptr;
  CHECK(read(document).head_dim == 8);
  document["attention_bias"] = true;
  CHECK(read(document).attention_bias);
  document = small("qwen3");
  document.erase("head_dim");
  CHECK(read(document).head_dim == 128);  // not hidden / heads
}

TEST_CASE("windows count for qwen only when they are switched on", "[families]") {
  json document = small("qwen2");
  document["sliding_window"] = 16;
  document["max_window_layers"] = 1;
  const std::vector<std::int64_t> none{0, 0, 0};
  CHECK(read(document).windows() == none);
  document["use_sliding_window"] = false;
  document["layer_types"] = {"full_attention", "sliding_attention", "sliding_attention"};
  CHECK(read(document).windows() == none);
  document["use_sliding_window"] = true;
  CHECK(read(document).windows() == std::vector<std::int64_t>{0, 16, 16});
  document.erase("layer_types");
  document["max_window_layers"] = 2;
  CHECK(read(document).windows() == std::vector<std::int64_t>{0, 0, 16});
}

TEST_CASE("what is not supported is refused by name", "[families]") {
  CHECK_THAT(refusal("llama", "hidden_act", "gelu"), Contains("gelu") && Contains("config.json"));
  CHECK_THAT(refusal("llama", "mlp_bias", true), Contains("mlp_bias"));
  CHECK_THAT(refusal("llama", "quantization_config", json::object()), Contains("quantized"));
  CHECK_THAT(refusal("llama", "rope_scaling", {{"rope_type", "longrope"}, {"factor", 4}}),
             Contains("longrope"));
  CHECK_THAT(refusal("llama", "rope_scaling", {{"type", "dynamic"}, {"factor", 4}}),
             Contains("dynamic"));
  CHECK_THAT(refusal("llama", "rope_scaling", {{"factor", 4}}), Contains("rope_type"));
  CHECK_THAT(refusal("llama", "rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}),
             Contains("full_attention"));
  CHECK_THAT(refusal("llama", "rope_scaling",
                     {{"rope_type", "yarn"},
                      {"factor", 4},
                      {"original_max_position_embeddings", 64},
                      {"attention_factor", 1.0}}),
             Contains("attention_factor"));
  CHECK_THAT(refusal("llama", "vocab_size", "many"), Contains("'vocab_size'") && Contains("many"));
  CHECK_THAT(refusal("llama", "vocab_size", nullptr), Contains("'vocab_size' is missing"));
  CHECK_THAT(refusal("llama", "layer_types", {1, 2, 3}), Contains("'layer_types'"));
  CHECK_THAT(refusal("llama", "num_key_value_heads", 3),
             Contains("config.json") && Contains("num_key_value_heads"));
  CHECK_THAT(
      refusal("llama", "model_type", "gpt2"),
      Contains("'gpt2'") && Contains("possible are llama, qwen2, qwen3, nemotron_labs_diffusion"));

  const test::Folder folder;
  CHECK_THAT(error_of([&] { read_hf_config(folder.path()); }), Contains("config.json"));
  folder.write("config.json", "{\"vocab_size\": ");
  CHECK_THAT(error_of([&] { read_hf_config(folder.path()); }), Contains("not valid JSON"));
  folder.write("config.json", "[1]");
  CHECK_THAT(error_of([&] { read_hf_config(folder.path()); }), Contains("not a JSON object"));
}

TEST_CASE("a written config.json is read back as the same model", "[families]") {
  std::vector<ModelConfig> configs;
  for (const auto& entry : std::filesystem::directory_iterator(golden)) {
    configs.push_back(read_hf_config(entry.path().string()));
  }
  ModelConfig windowed = read(small("qwen3"));
  windowed.sliding_window = 5;
  windowed.layer_types = {"full_attention", "sliding_attention", "full_attention"};
  windowed.partial_rotary_factor = 0.5;
  configs.push_back(windowed);
  for (const ModelConfig& config : configs) {
    const json document = hf_config(config);
    INFO(document.dump());
    CHECK(document.at("architectures").size() == 1);
    const ModelConfig back = read(document);
    CHECK(hf_config(back) == document);
    CHECK(back.family == config.family);
    CHECK(back.hidden_size == config.hidden_size);
    CHECK(back.head_dim == config.head_dim);
    CHECK(back.attention_bias == config.attention_bias);
    CHECK(back.qk_norm == config.qk_norm);
    CHECK(back.tie_word_embeddings == config.tie_word_embeddings);
    CHECK(back.rope_theta == config.rope_theta);
    CHECK(back.partial_rotary_factor == config.partial_rotary_factor);
    CHECK(back.rope_scaling.type == config.rope_scaling.type);
    CHECK(back.rope_scaling.factor == config.rope_scaling.factor);
    CHECK(back.rope_scaling.beta_fast == config.rope_scaling.beta_fast);
    CHECK(back.rope_scaling.mscale == config.rope_scaling.mscale);
    CHECK(back.rope_scaling.llama_4_scaling_beta == config.rope_scaling.llama_4_scaling_beta);
    CHECK(back.windows() == config.windows());
    CHECK(back.mask_token_id == config.mask_token_id);
  }

  ModelConfig foreign = read(small("llama"));
  foreign.qk_norm = true;
  CHECK_THAT(error_of([&] { hf_config(foreign); }), Contains("qk_norm"));
  foreign = family_defaults("qwen2");
  CHECK(foreign.attention_bias);
  foreign.attention_bias = false;
  CHECK_THAT(error_of([&] { hf_config(foreign); }), Contains("attention_bias"));
}

TEST_CASE("names on disk", "[families]") {
  const auto names = [](const std::string& folder) {
    const ModelConfig config = read_hf_config(golden + folder);
    std::vector<std::string> out;
    for (const DiskTensor& tensor : disk_tensors(config, layout_of(config))) {
      CHECK(tensor.parts.size() == 1);
      out.push_back(tensor.name);
    }
    return out;
  };
  const auto has = [](const std::vector<std::string>& list, const std::string& name) {
    return std::ranges::count(list, name) == 1;
  };
  const auto nemotron = names("nemotron_labs_causal_ar");
  CHECK(nemotron.size() == 2 * 9 + 3);
  CHECK(has(nemotron, "encoder.embed_tokens.weight"));
  CHECK(has(nemotron, "encoder.layers.1.self_attn.q_proj.weight"));
  CHECK(has(nemotron, "encoder.norm.weight"));
  CHECK(has(nemotron, "diffusion_head.weight"));
  const auto qwen2 = names("fast_dllm_v2_views_shift");
  CHECK(qwen2.size() == 2 * 12 + 2);
  CHECK(has(qwen2, "model.layers.0.self_attn.v_proj.bias"));
  CHECK_FALSE(has(qwen2, "lm_head.weight"));
}
