// SPDX-License-Identifier: Apache-2.0
// Where each tensor stands in the flat parameter range, views of it, and random initialisation.
#include "model/parameters.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string_view>

#include "kernels/philox.h"

namespace bdlm {
namespace {

/// A bf16 group of 64 elements starts on a 128-byte line, which is what vector loads ask for.
constexpr std::int64_t group_alignment = 64;

class LayoutBuilder {
 public:
  /// The next tensor starts a group.
  void group() {
    layout_.size = (layout_.size + group_alignment - 1) / group_alignment * group_alignment;
  }
  void matrix(std::string name, std::int64_t rows, std::int64_t cols) {
    add(std::move(name), rows, cols, false);
  }
  void vector(std::string name, std::int64_t cols) { add(std::move(name), 1, cols, true); }
  ParameterLayout finish() {
    group();  // a whole number of lines, so that every replica's part can be one
    return std::move(layout_);
  }

 private:
  void add(std::string name, std::int64_t rows, std::int64_t cols, bool vector) {
    layout_.index.emplace(name, layout_.tensors.size());
    layout_.tensors.push_back({std::move(name), rows, cols, vector, layout_.size});
    layout_.size += rows * cols;
  }

  ParameterLayout layout_;
};

void add_layer(LayoutBuilder& builder, const ModelConfig& config, std::int64_t layer) {
  const std::string base = fmt::format("model.layers.{}.", layer);
  const std::int64_t hidden = config.hidden_size, head = config.head_dim;
  const std::int64_t query = config.query_width(), key = config.num_key_value_heads * head;

  builder.group();
  builder.vector(base + "input_layernorm.weight", hidden);
  builder.group();
  builder.matrix(base + "self_attn.q_proj.weight", query, hidden);
  builder.matrix(base + "self_attn.k_proj.weight", key, hidden);
  builder.matrix(base + "self_attn.v_proj.weight", key, hidden);
  if (config.attention_bias) {
    builder.group();
    builder.vector(base + "self_attn.q_proj.bias", query);
    builder.vector(base + "self_attn.k_proj.bias", key);
    builder.vector(base + "self_attn.v_proj.bias", key);
  }
  if (config.qk_norm) {
    builder.group();
    builder.vector(base + "self_attn.q_norm.weight", head);
    builder.group();
    builder.vector(base + "self_attn.k_norm.weight", head);
  }
  builder.group();
  builder.matrix(base + "self_attn.o_proj.weight", hidden, query);
  builder.group();
  builder.vector(base + "post_attention_layernorm.weight", hidden);
  builder.group();
  builder.matrix(base + "mlp.gate_proj.weight", config.intermediate_size, hidden);
  builder.matrix(base + "mlp.up_proj.weight", config.intermediate_size, hidden);
  builder.group();
  builder.matrix(base + "mlp.down_proj.weight", hidden, config.intermediate_size);
}

/// FNV-1a (Fowler, Noll, Vo). Weights are counted by their name, not by their place, so that a
/// tensor starts alike whatever else the model has.
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325ull;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return hash;
}

/// Elements 2 pair and 2 pair + 1 of a tensor: both results of one Box-Muller transform.
std::array<double, 2> normal_pair(const Philox& random, std::uint64_t tensor, std::int64_t pair) {
  const auto bits = random.bits(tensor, static_cast<std::uint64_t>(pair));
  const auto unit = [](std::uint32_t high, std::uint32_t low) {  // in (0, 1): log of 0 is infinite
    const std::uint64_t wide = (static_cast<std::uint64_t>(high) << 32) | low;
    return (static_cast<double>(wide >> 12) + 0.5) * 0x1.0p-52;
  };
  const double radius = std::sqrt(-2 * std::log(unit(bits[0], bits[1])));
  const double angle = 2 * std::numbers::pi * unit(bits[2], bits[3]);
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

/// Elements [first, last) of one matrix.
void fill_normal(const Philox& random, const Parameter& tensor, double deviation,
                 std::int64_t first, std::int64_t last, double* out) {
  const std::uint64_t id = hash_of(tensor.name);
#pragma omp parallel for schedule(static) if (last - first > 1 << 14)
  for (std::int64_t pair = first / 2; pair < (last + 1) / 2; ++pair) {
    const auto values = normal_pair(random, id, pair);
    for (std::int64_t half = 0; half < 2; ++half) {
      const std::int64_t element = 2 * pair + half;
      if (element >= first && element < last) {
        out[element - first] = deviation * values[static_cast<std::size_t>(half)];
      }
    }
  }
}

}  // namespace

const Parameter& ParameterLayout::at(const std::string& name) const {
  if (const auto found = index.find(name); found != index.end()) return tensors[found->second];
  const auto found = std::ranges::find(tensors, name, &Parameter::name);  // put together by hand
  require(found != tensors.end(), "the model has no tensor '{}'", name);
  return *found;
}

std::int64_t ParameterLayout::count() const {
  std::int64_t sum = 0;
  for (const Parameter& tensor : tensors) sum += tensor.size();
  return sum;
}

ParameterLayout layout_of(const ModelConfig& config) {
  LayoutBuilder builder;
  builder.matrix("model.embed_tokens.weight", config.vocab_size, config.hidden_size);
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    add_layer(builder, config, layer);
  }
  builder.group();
  builder.vector("model.norm.weight", config.hidden_size);
  if (!config.tie_word_embeddings) {
    builder.group();
    builder.matrix("lm_head.weight", config.vocab_size, config.hidden_size);
  }
  return builder.finish();
}

ModelTensors view(const ModelConfig& config, const ParameterLayout& layout, Tensor flat) {
  require(flat.rows == 1 && flat.cols == layout.size,
          "a view of {} parameters was asked of a range of {}x{}", layout.size, flat.rows,
          flat.cols);
  // `count` tensors that stand one below the other, as one matrix (or one row, for vectors).
  const auto matrix = [&](const std::string& first, std::size_t count = 1) {
    const std::size_t place = layout.index.at(first);
    std::int64_t rows = 0, size = 0;
    for (std::size_t i = place; i < place + count; ++i) {
      rows += layout.tensors[i].rows;
      size += layout.tensors[i].size();
    }
    const Parameter& head = layout.tensors[place];
    if (head.vector) rows = 1;
    return flat.slice_cols(head.offset, size).reshape(rows, size / std::max<std::int64_t>(rows, 1));
  };

  ModelTensors out;
  out.embedding = matrix("model.embed_tokens.weight");
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string base = fmt::format("model.layers.{}.", layer);
    LayerTensors& tensors = out.layers.emplace_back();
    tensors.input_norm = matrix(base + "input_layernorm.weight");
    tensors.q = matrix(base + "self_attn.q_proj.weight");
    tensors.kv = matrix(base + "self_attn.k_proj.weight", 2);
    if (config.attention_bias) {
      tensors.q_bias = matrix(base + "self_attn.q_proj.bias");
      tensors.kv_bias = matrix(base + "self_attn.k_proj.bias", 2);
    }
    if (config.qk_norm) {
      tensors.q_norm = matrix(base + "self_attn.q_norm.weight");
      tensors.k_norm = matrix(base + "self_attn.k_norm.weight");
    }
    tensors.o = matrix(base + "self_attn.o_proj.weight");
    tensors.post_norm = matrix(base + "post_attention_layernorm.weight");
    tensors.gate_up = matrix(base + "mlp.gate_proj.weight", 2);
    tensors.down = matrix(base + "mlp.down_proj.weight");
  }
  out.norm = matrix("model.norm.weight");
  out.head = config.tie_word_embeddings ? out.embedding : matrix("lm_head.weight");
  return out;
}

void initialize(const ModelConfig& config, const ParameterLayout& layout, std::uint64_t seed,
                std::int64_t begin, std::int64_t count, double* out) {
  require(begin >= 0 && count >= 0 && begin + count <= layout.size,
          "elements {}..{} are not within the {} parameters", begin, begin + count, layout.size);
  const Philox random(seed, RandomPurpose::initial_weights);
  std::fill_n(out, count, 0.0);
  for (const Parameter& tensor : layout.tensors) {
    const std::int64_t first = std::max(begin, tensor.offset);
    const std::int64_t last = std::min(begin + count, tensor.offset + tensor.size());
    if (first >= last) continue;
    double* target = out + (first - begin);
    if (!tensor.vector) {
      fill_normal(random, tensor, config.initializer_range, first - tensor.offset,
                  last - tensor.offset, target);
    } else if (!tensor.name.ends_with(".bias")) {
      std::fill_n(target, last - first, 1.0);
    }
  }
}

}  // namespace bdlm
