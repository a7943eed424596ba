// SPDX-License-Identifier: Apache-2.0
// A Hugging Face config.json as a ModelConfig.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>

#include "kernels/error.h"
#include "model/families.h"
#include "model/families_table.h"
#include "model/rotary.h"

namespace bdlm {
namespace {

using nlohmann::json;

/// One JSON object of the file, read field by field. A null is a field that is not there.
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  /// The first key that is there; none of them: not set.
  template <class T>
  std::optional<T> find(std::initializer_list<const char*> keys) const {
    for (const char* key : keys) {
      if (has(key)) return convert<T>(key);
    }
    return std::nullopt;
  }
  template <class T>
  T get(const char* key, T otherwise) const {
    return find<T>({key}).value_or(otherwise);
  }
  template <class T>
  T need(const char* key) const {
    require(has(key), "{}: field '{}' is missing", where_, key);
    return convert<T>(key);
  }
  std::optional<Fields> object(const char* key) const {
    if (!has(key)) return std::nullopt;
    require(object_[key].is_object(), "{}: field '{}' is not an object", where_, key);
    return Fields(object_[key], where_ + ": " + key);
  }
  const json& raw() const { return object_; }

 private:
  template <class T>
  T convert(const char* key) const {
    const json& value = object_[key];
    const bool fits = std::is_same_v<T, bool>          ? value.is_boolean()
                      : std::is_integral_v<T>          ? value.is_number_integer()
                      : std::is_floating_point_v<T>    ? value.is_number()
                      : std::is_same_v<T, std::string> ? value.is_string()
                                                       : value.is_array();
    const char* wanted = std::is_same_v<T, bool>          ? "true or false"
                         : std::is_integral_v<T>          ? "a whole number"
                         : std::is_floating_point_v<T>    ? "a number"
                         : std::is_same_v<T, std::string> ? "a string"
                                                          : "a list of strings";
    try {
      if (fits) return value.get<T>();
    } catch (const json::exception&) {  // an element of the list
    }
    fail("{}: field '{}' must be {}, it is {}", where_, key, wanted, value.dump());
  }

  const json& object_;
  std::string where_;
};

RopeScaling read_scaling(const Fields& fields, std::int64_t max_positions) {
  RopeScaling out;
  const std::string type = fields.find<std::string>({"rope_type", "type"}).value_or("default");
  if (type == "llama3") {
    out.type = RopeType::llama3;
  } else if (type == "yarn") {
    out.type = RopeType::yarn;
  } else {
    require(type == "default",
            "{}: rope_type '{}' is not supported, possible are default, llama3 "
            "and yarn",
            fields.where(), type);
    require(fields.get("factor", 1.0) == 1, "{}: a factor without rope_type says nothing",
            fields.where());
  }
  for (const auto& [key, value] : fields.raw().items()) {
    require(!value.is_object(), "{}: rope settings by layer type ('{}') are not supported",
            fields.where(), key);
  }
  if (out.type != RopeType::plain) out.factor = fields.need<double>("factor");
  if (out.type == RopeType::llama3) {
    out.low_freq_factor = fields.need<double>("low_freq_factor");
    out.high_freq_factor = fields.need<double>("high_freq_factor");
  }
  // Absent, the model was extended beyond nothing but its own stated length.
  out.original_max_position_embeddings =
      fields.get("original_max_position_embeddings", static_cast<double>(max_positions));
  out.beta_fast = fields.get("beta_fast", out.beta_fast);
  out.beta_slow = fields.get("beta_slow", out.beta_slow);
  out.mscale = fields.get("mscale", out.mscale);
  out.mscale_all_dim = fields.get("mscale_all_dim", out.mscale_all_dim);
  out.llama_4_scaling_beta = fields.get("llama_4_scaling_beta", out.llama_4_scaling_beta);
  if (out.type == RopeType::yarn) {
    require(fields.get("truncate", true), "{}: 'truncate: false' is not supported", fields.where());
    const double magnitude = fields.get("attention_factor", rotary_magnitude(out));
    require(std::abs(magnitude - rotary_magnitude(out)) < 1e-12 * magnitude,
            "{}: attention_factor {} is not supported, only the {} that mscale and factor give",
            fields.where(), magnitude, rotary_magnitude(out));
  }
  return out;
}

void read_rope(const Fields& fields, ModelConfig& config) {
  const std::optional<Fields> parameters = fields.object("rope_parameters");
  const std::optional<Fields> scaling = parameters ? parameters : fields.object("rope_scaling");
  // Either place is possible for these two; the newer files have them inside.
  for (const auto& place : {std::optional(fields), scaling}) {
    if (!place) continue;
    config.rope_theta = place->get("rope_theta", config.rope_theta);
    config.partial_rotary_factor =
        place->get("partial_rotary_factor", config.partial_rotary_factor);
  }
  if (scaling) config.rope_scaling = read_scaling(*scaling, config.max_position_embeddings);
}

/// Where the family has the switch use_sliding_window, transformers looks at windows only when it
/// is on. A file without the switch that lists layer_types means them.
void read_windows(const Fields& fields, const Family& family, ModelConfig& config) {
  const auto on = fields.find<bool>({"use_sliding_window"});
  if (family.window_switch && on && !*on) return;
  config.sliding_window = fields.get<std::int64_t>("sliding_window", 0);
  config.layer_types = fields.get("layer_types", config.layer_types);
  if (family.window_switch && on && config.layer_types.empty()) {
    const auto first = fields.get<std::int64_t>("max_window_layers", 28);  // transformers' default
    for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
      config.layer_types.push_back(layer >= first ? "sliding_attention" : "full_attention");
    }
  }
}

/// Experts and how they are chosen, with each family's defaults where the file says nothing.
void read_mixture(const Fields& fields, Mixture kind, ModelConfig& config) {
  if (kind == Mixture::none) return;
  config.num_experts = fields.need<std::int64_t>("num_experts");
  config.num_experts_per_tok = fields.need<std::int64_t>("num_experts_per_tok");
  config.moe_intermediate_size = fields.need<std::int64_t>("moe_intermediate_size");
  if (kind == Mixture::qwen3) {
    config.norm_topk_prob = fields.get("norm_topk_prob", false);  // transformers' default
    const auto step = fields.get<std::int64_t>("decoder_sparse_step", 1);
    require(step == 1,
            "{}: decoder_sparse_step {} is not supported, only 1: experts in every layer",
            fields.where(), step);
    require(!fields.has("mlp_only_layers") || fields.raw()["mlp_only_layers"].empty(),
            "{}: mlp_only_layers is not supported, only experts in every layer", fields.where());
    return;
  }
  const auto score = fields.get<std::string>("score_function", "sigmoid");
  require(score == "sigmoid", "{}: score_function '{}' is not supported, only sigmoid",
          fields.where(), score);
  require(!fields.get("use_bias", false), "{}: use_bias is not supported", fields.where());
  require(!fields.get("norm_head", false), "{}: norm_head is not supported", fields.where());
  config.router_bias = fields.get("moe_router_enable_expert_bias", config.router_bias);
  config.norm_topk_prob = fields.get("norm_topk_prob", config.norm_topk_prob);
  config.first_k_dense_replace = fields.get("first_k_dense_replace", config.first_k_dense_replace);
  config.n_group = fields.get("n_group", config.n_group);
  config.topk_group = fields.get("topk_group", config.topk_group);
  config.routed_scaling_factor = fields.get("routed_scaling_factor", config.routed_scaling_factor);
  config.num_shared_experts = fields.get("num_shared_experts", config.num_shared_experts);
}

/// Parts of a decoder that exist elsewhere but not here.
void refuse_others(const Fields& fields) {
  const auto act = fields.get<std::string>("hidden_act", "silu");
  require(act == "silu", "{}: hidden_act '{}' is not supported, only silu", fields.where(), act);
  require(!fields.get("mlp_bias", false), "{}: mlp_bias is not supported", fields.where());
  require(!fields.has("quantization_config"),
          "{}: quantized weights are not supported, take the model's F32, BF16 or F16 files",
          fields.where());
}

json parse(const std::string& path) {
  std::ifstream file(path);
  require(file.good(), "{} cannot be opened: give a Hugging Face folder that has a config.json",
          path);
  json out;
  try {
    out = json::parse(file);
  } catch (const json::exception& error) {
    fail("{} is not valid JSON: {}", path, error.what());
  }
  require(out.is_object(), "{} is not a JSON object", path);
  return out;
}

}  // namespace

ModelConfig read_hf_config(const std::string& folder) {
  const std::string path = (std::filesystem::path(folder) / "config.json").string();
  const json document = parse(path);
  const Fields fields(document, path);
  const Family& family = family_of(fields.need<std::string>("model_type"), path);
  refuse_others(fields);

  ModelConfig config = family_defaults(family.name);
  config.vocab_size = fields.need<std::int64_t>("vocab_size");
  config.hidden_size = fields.need<std::int64_t>("hidden_size");
  config.intermediate_size = fields.need<std::int64_t>("intermediate_size");
  config.num_hidden_layers = fields.need<std::int64_t>("num_hidden_layers");
  config.num_attention_heads = fields.need<std::int64_t>("num_attention_heads");
  config.num_key_value_heads = fields.get("num_key_value_heads", config.num_attention_heads);
  config.head_dim = fields.get("head_dim", family.default_head_dim);
  config.rms_norm_eps = fields.get("rms_norm_eps", config.rms_norm_eps);
  if (family.bias == QkvBias::by_key) {
    config.attention_bias = fields.get(family.bias_key, config.attention_bias);
  }
  if (family.qk_norm_key != nullptr) {
    config.qk_norm = fields.get(family.qk_norm_key, config.qk_norm);
  }
  config.tie_word_embeddings = fields.get("tie_word_embeddings", config.tie_word_embeddings);
  config.initializer_range = fields.get("initializer_range", config.initializer_range);
  config.max_position_embeddings =
      fields.get("max_position_embeddings", config.max_position_embeddings);
  config.mask_token_id = fields.find<std::int64_t>({"mask_token_id"});
  read_mixture(fields, family.mixture, config);
  read_rope(fields, config);
  read_windows(fields, family, config);
  try {
    complete(config);
  } catch (const Error& error) {
    fail("{} describes a model that cannot work:\n{}", path, error.what());
  }
  return config;
}

}  // namespace bdlm
