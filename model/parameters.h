// SPDX-License-Identifier: Apache-2.0
// All parameters of a model as one flat range, so that the optimizer, ZeRO and checkpoints treat
// them alike. Tensors that are multiplied together stand side by side: [q; k; v] is one matrix,
// [gate; up] is one matrix.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/device.h"
#include "model/config.h"

namespace bdlm {

/// One logical tensor, by its canonical (Llama-style) name. Row-major in the flat range.
struct Parameter {
  std::string name;       // "model.layers.0.self_attn.q_proj.weight"
  std::int64_t rows = 0;  // 1 for vectors
  std::int64_t cols = 0;
  bool vector = false;      // one dimension: no weight decay, [cols] on disk
  std::int64_t offset = 0;  // first element in the flat range
  std::int64_t size() const { return rows * cols; }
};

struct ParameterLayout {
  std::vector<Parameter> tensors;  // ascending by offset
  std::int64_t size = 0;           // elements of the flat range, gaps for alignment included
  std::unordered_map<std::string, std::size_t> index;  // into tensors; layout_of fills it
  const Parameter& at(const std::string& name) const;  // throws Error when there is none
  std::int64_t count() const;                          // logical elements, without gaps
};

/// Groups start at multiples of 64 elements and have no gap inside: [q; k; v] weights, their
/// biases, [gate; up], every other tensor alone. A gap is never longer than 63 elements.
ParameterLayout layout_of(const ModelConfig& config);

/// A layer's tensors as views of a flat range (of weights or of their gradients). A view that the
/// model does not have is empty.
struct LayerTensors {
  Tensor input_norm;       // [1, D]
  Tensor q, kv;            // [H d, D], [2 K d, D] = [k; v]
  Tensor q_bias, kv_bias;  // [1, H d], [1, 2 K d]
  Tensor q_norm, k_norm;   // [1, d]
  Tensor o;                // [D, H d]
  Tensor post_norm;        // [1, D]
  Tensor gate_up;          // [2 F, D]
  Tensor down;             // [D, F]
};

struct ModelTensors {
  Tensor embedding;  // [V, D]
  std::vector<LayerTensors> layers;
  Tensor norm;  // [1, D]
  Tensor head;  // [V, D]; the embedding's memory when tied
};

/// flat: [1, layout.size].
ModelTensors view(const ModelConfig& config, const ParameterLayout& layout, Tensor flat);

/// Writes elements [begin, begin + count) of the flat range as random initialisation gives them:
/// normal(0, initializer_range) for matrices, 1 for norms, 0 for biases and gaps. A pure function
/// of (seed, element), so any rank can make any part.
void initialize(const ModelConfig& config, const ParameterLayout& layout, std::uint64_t seed,
                std::int64_t begin, std::int64_t count, double* out);

}  // namespace bdlm
