// SPDX-License-Identifier: Apache-2.0
// A layout's tensors as matrices in memory.
#include "model/parameters.h"

namespace bdlm {
namespace {

/// `count` tensors that stand one below the other, as one matrix (or one row, for vectors).
Tensor stacked(const ParameterLayout& layout, const ParameterMemory& memory,
               const std::string& first, std::size_t count = 1) {
  const auto found = layout.index.find(first);
  require(found != layout.index.end(), "tensor '{}' is not on this rank", first);
  const Parameter& head = layout.tensors[found->second];
  std::int64_t along = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& tensor = layout.tensors[found->second + i];
    along += head.vector ? tensor.cols : tensor.rows;
  }
  const std::int64_t rows = head.vector ? 1 : along, cols = head.vector ? along : head.cols;
  return memory(head.holders, {head.offset, rows * cols}).reshape(rows, cols);
}

void view_mlp(const ParameterLayout& layout, const ParameterMemory& memory, const std::string& base,
              LayerTensors& out) {
  out.gate_up = stacked(layout, memory, base + "gate_proj.weight", 2);
  out.down = stacked(layout, memory, base + "down_proj.weight");
}

void view_mixture(const ModelConfig& config, const ParameterLayout& layout,
                  const ParameterMemory& memory, const std::string& base, LayerTensors& out) {
  out.router = stacked(layout, memory, base + "gate.weight");
  if (config.router_bias) out.router_bias = stacked(layout, memory, base + "gate.expert_bias");
  if (config.num_shared_experts > 0) view_mlp(layout, memory, base + "shared_experts.", out);
  if (layout.experts.count == 0) return;
  const auto experts = static_cast<std::size_t>(layout.experts.count);
  const std::string first = fmt::format("{}experts.{}.", base, layout.experts.begin);
  out.expert_gate_up = stacked(layout, memory, first + "gate_proj.weight", 2 * experts);
  out.expert_down = stacked(layout, memory, first + "down_proj.weight", experts);
}

}  // namespace

LayerTensors view_layer(const ModelConfig& config, const ParameterLayout& layout,
                        std::int64_t layer, const ParameterMemory& memory) {
  const std::string base = fmt::format("model.layers.{}.", layer);
  const auto matrix = [&](const char* name, std::size_t count = 1) {
    return stacked(layout, memory, base + name, count);
  };
  LayerTensors out;
  out.input_norm = matrix("input_layernorm.weight");
  out.q = matrix("self_attn.q_proj.weight");
  out.kv = matrix("self_attn.k_proj.weight", 2);
  if (config.attention_bias) {
    out.q_bias = matrix("self_attn.q_proj.bias");
    out.kv_bias = matrix("self_attn.k_proj.bias", 2);
  }
  if (config.qk_norm) {
    out.q_norm = matrix("self_attn.q_norm.weight");
    out.k_norm = matrix("self_attn.k_norm.weight");
  }
  out.o = matrix("self_attn.o_proj.weight");
  out.post_norm = matrix("post_attention_layernorm.weight");
  if (config.sparse(layer)) {
    view_mixture(config, layout, memory, base + "mlp.", out);
  } else {
    view_mlp(layout, memory, base + "mlp.", out);
  }
  return out;
}

Tensor view_embedding(const ParameterLayout& layout, const ParameterMemory& memory) {
  return stacked(layout, memory, "model.embed_tokens.weight");
}

HeadView view_head(const ModelConfig& config, const ParameterLayout& layout,
                   const ParameterMemory& memory, const ParameterMemory& embedding) {
  return {stacked(layout, memory, "model.norm.weight"),
          config.tie_word_embeddings ? view_embedding(layout, embedding)
                                     : stacked(layout, memory, "lm_head.weight")};
}

ParameterMemory in_flat(Tensor flat) {
  return [flat](Holders, FlatRange range) { return flat.slice_cols(range.begin, range.count); };
}

}  // namespace bdlm
