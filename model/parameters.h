// SPDX-License-Identifier: Apache-2.0
// All parameters that a rank holds as one flat range, so that the optimizer, ZeRO and checkpoints
// treat them alike. Tensors that are multiplied together stand side by side: [q; k; v] is one
// matrix, [gate; up] is one matrix, all experts' [gate; up] are one, all experts' down are one.
//
// The flat range consists of up to five parts, one for each set of ranks that hold the same
// elements (Holders). A gradient is summed over its holders, and ZeRO cuts a part over them, so
// every element of the model has exactly one owner in the world.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/device.h"
#include "model/config.h"
#include "model/model_shard.h"
#include "parallel/mesh.h"

namespace bdlm {

/// One logical tensor, by its canonical (Llama-style) name, and the part of it that is here: a box
/// of its rows and columns, row-major in the flat range.
struct Parameter {
  std::string name;       // "model.layers.0.self_attn.q_proj.weight"
  std::int64_t rows = 0;  // here; 1 for vectors; 0: this rank's share is empty
  std::int64_t cols = 0;
  bool vector = false;      // one dimension: no weight decay, [whole_cols] on disk
  std::int64_t offset = 0;  // first element in the flat range
  std::int64_t whole_rows = 0, whole_cols = 0;  // of the logical tensor
  std::int64_t first_row = 0, first_col = 0;    // of the part
  Holders holders = Holders::sharded;
  bool frozen = false;  // no gradient, no weight decay, but part of every checkpoint
  std::int64_t size() const { return rows * cols; }
  std::int64_t whole_size() const { return whole_rows * whole_cols; }
};

/// Parameters come and go in units: the embedding, a layer each, the final norm with the head.
/// Unit 0 is the embedding, unit 1 + i the rank's i-th layer, the last one the head.
/// All ranges are in coordinates of the flat range. Sets follow each other without a gap, and so do
/// the parts of a set's units: what alignment adds belongs to the unit before it. A set or part
/// without a tensor is empty and begins where it would stand.
struct ParameterLayout {
  std::vector<Parameter> tensors;  // ascending by offset: by set, unit and place in the unit
  std::int64_t size = 0;           // elements of the flat range, gaps for alignment included
  std::array<FlatRange, holder_sets> sets{};  // the parts of the flat range; most are empty
  std::vector<std::array<FlatRange, holder_sets>> units;  // the parts of every unit
  FlatRange experts;  // of the model's experts, those whose tensors are here (in every sparse layer)
  std::unordered_map<std::string, std::size_t> index;  // into tensors; layout_of fills it
  const Parameter& at(const std::string& name) const;  // throws Error when there is none
  std::int64_t count() const;                          // elements here, without gaps
};

/// Groups start at multiples of 64 elements and have no gap inside: [q; k; v] weights, their
/// biases, [gate; up], all experts' [gate; up], all experts' down, every other tensor alone. Where
/// k and v are in another set than q, [k; v] is a group. A gap is never longer than 63 elements. A
/// unit's part and a set start at multiples of 64 too.
///
/// Of rank t of T tensor ranks: heads [t H/T, (t+1) H/T) with their columns of o_proj, key/value
/// heads likewise, or head t KV/T where T is a multiple of KV; share_of(F, t, T) of the MLP's width
/// and share_of(V, t, T) of embedding and head; experts share_of(E, x, X). Norms, router and shared
/// experts are whole. Throws Error for heads that cannot be cut so.
ParameterLayout layout_of(const ModelConfig& config, const ModelShard& shard);
/// Of the whole model.
ParameterLayout layout_of(const ModelConfig& config);

/// A layer's tensors as views of memory (of weights or of their gradients). A view that the layer
/// does not have is empty. Sizes are those of this rank: H and K heads, F, its E' experts.
struct LayerTensors {
  Tensor input_norm;       // [1, D]
  Tensor q, kv;            // [H d, D], [2 K d, D] = [k; v]
  Tensor q_bias, kv_bias;  // [1, H d], [1, 2 K d]
  Tensor q_norm, k_norm;   // [1, d]
  Tensor o;                // [D, H d]
  Tensor post_norm;        // [1, D]
  // A dense layer's MLP, or a sparse layer's shared experts.
  Tensor gate_up;  // [2 F, D]
  Tensor down;     // [D, F]
  // A sparse layer.
  Tensor router;       // [E, D]
  Tensor router_bias;  // [1, E]: takes part in the choice only; frozen
  Tensor expert_gate_up;  // [E' 2 M, D], each expert's [gate; up]
  Tensor expert_down;     // [E' D, M]
};

/// Gives the memory of elements [range.begin, range.begin + range.count) of the flat range, all of
/// one unit's part of one set, as [1, count]. The count may be 0.
using ParameterMemory = std::function<Tensor(Holders, FlatRange)>;

/// Views of one unit's tensors. `layer` of the model, not of the rank.
LayerTensors view_layer(const ModelConfig& config, const ParameterLayout& layout,
                        std::int64_t layer, const ParameterMemory& memory);
Tensor view_embedding(const ParameterLayout& layout, const ParameterMemory& memory);  // [V', D]
struct HeadView {
  Tensor norm;  // [1, D]
  Tensor head;  // [V', D]; the embedding's memory when tied and not pipelined
};
/// `embedding` is asked for a tied head only: the memory of the unit that the embedding is in, which
/// is the head's own where it is on another rank than the embedding's.
HeadView view_head(const ModelConfig& config, const ParameterLayout& layout,
                   const ParameterMemory& memory, const ParameterMemory& embedding);
/// Memory of one flat tensor [1, layout.size].
ParameterMemory in_flat(Tensor flat);

/// A run of a part's elements that are consecutive in the logical tensor too.
struct LogicalRun {
  std::int64_t first = 0;  // in the logical tensor, row-major
  std::int64_t count = 0;
  std::int64_t local = 0;  // in the flat range
};
/// The runs of elements [begin, begin + count) of the flat range that belong to tensor `p`.
std::vector<LogicalRun> logical_runs(const Parameter& p, std::int64_t begin, std::int64_t count);

/// Writes elements [begin, begin + count) of the flat range as random initialisation gives them:
/// normal(0, initializer_range) for matrices, 1 for norms, 0 for biases and gaps. A pure function
/// of (seed, tensor, element of the logical tensor), so any rank can make any part.
void initialize(const ModelConfig& config, const ParameterLayout& layout, std::uint64_t seed,
                std::int64_t begin, std::int64_t count, double* out);

}  // namespace bdlm
