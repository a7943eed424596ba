// SPDX-License-Identifier: Apache-2.0
// Which parts of the model's tensors are on a rank, in which set, and where in its flat range.
#include <algorithm>
#include <utility>

#include "model/parameters.h"

namespace bdlm {
namespace {

/// A bf16 group of 64 elements starts on a 128-byte line, which is what vector loads ask for.
constexpr std::int64_t group_alignment = 64;

std::int64_t aligned(std::int64_t size) {
  return (size + group_alignment - 1) / group_alignment * group_alignment;
}

/// Sets that are the same ranks on this mesh are one.
Holders merged(Holders holders, const ModelConfig& config, const ModelShard& shard) {
  if (holders == Holders::experts && shard.expert == 1) holders = Holders::replicated;
  if (holders == Holders::replicated && shard.tensor == 1) holders = Holders::sharded;
  if (holders == Holders::keys && config.num_key_value_heads % shard.tensor == 0)
    holders = Holders::sharded;
  return holders;
}

/// Takes tensors in the order of units and of places in them, and gives them their places.
class LayoutBuilder {
 public:
  LayoutBuilder(const ModelConfig& config, const ModelShard& shard)
      : config_(config), shard_(shard) {}

  void unit() { ++units_; }
  /// The next tensor starts a group.
  void group() { ++group_; }

  void matrix(std::string name, std::int64_t rows, std::int64_t cols, Holders holders) {
    cut_rows(std::move(name), rows, cols, {0, rows}, holders);
  }
  void cut_rows(std::string name, std::int64_t rows, std::int64_t cols, FlatRange here,
                Holders holders) {
    add({.name = std::move(name), .rows = here.count, .cols = cols, .whole_rows = rows,
         .whole_cols = cols, .first_row = here.begin, .holders = holders});
  }
  void cut_cols(std::string name, std::int64_t rows, std::int64_t cols, FlatRange here,
                Holders holders) {
    add({.name = std::move(name), .rows = rows, .cols = here.count, .whole_rows = rows,
         .whole_cols = cols, .first_col = here.begin, .holders = holders});
  }
  void vector(std::string name, std::int64_t cols, FlatRange here, Holders holders) {
    cut_cols(std::move(name), 1, cols, here, holders);
    placed_.back().tensor.vector = true;
  }
  void vector(std::string name, std::int64_t cols, Holders holders) {
    vector(std::move(name), cols, {0, cols}, holders);
  }
  void freeze_last() { placed_.back().tensor.frozen = true; }

  ParameterLayout finish() {
    ParameterLayout layout;
    std::ranges::stable_sort(placed_, {}, [](const Placed& p) {
      return std::pair(p.tensor.holders, p.unit);
    });
    layout.units.resize(units_);
    layout.tensors.reserve(placed_.size());
    auto next = placed_.begin();
    for (std::size_t set = 0; set < holder_sets; ++set) {
      layout.sets[set].begin = layout.size;
      for (std::size_t unit = 0; unit < units_; ++unit) {
        const std::int64_t begin = layout.size;
        std::size_t group = 0;
        for (; next != placed_.end() && next->unit == unit &&
               static_cast<std::size_t>(next->tensor.holders) == set;
             ++next) {
          if (next->group != group) layout.size = aligned(layout.size);
          group = next->group;
          next->tensor.offset = layout.size;
          layout.size += next->tensor.size();
          layout.index.emplace(next->tensor.name, layout.tensors.size());
          layout.tensors.push_back(std::move(next->tensor));
        }
        layout.size = aligned(layout.size);  // a whole number of lines, as any owner's part can be
        layout.units[unit][set] = {begin, layout.size - begin};
      }
      layout.sets[set].count = layout.size - layout.sets[set].begin;
    }
    return layout;
  }

 private:
  struct Placed {
    Parameter tensor;
    std::size_t unit, group;
  };
  void add(Parameter tensor) {
    tensor.holders = merged(tensor.holders, config_, shard_);
    placed_.push_back({std::move(tensor), units_ - 1, group_});
  }

  const ModelConfig& config_;
  const ModelShard& shard_;
  std::vector<Placed> placed_;
  std::size_t units_ = 0, group_ = 0;
};

/// What this rank has of the widths that the tensor group cuts.
struct Cuts {
  FlatRange query, keys;  // channels
  FlatRange mlp, vocabulary;
  FlatRange experts;

  Cuts(const ModelConfig& config, const ModelShard& shard) {
    const ModelConfig local = local_config(config, shard);  // refuses heads that do not divide
    const int t = shard.tensor_rank, tensor = shard.tensor;
    query = {t * local.query_width(), local.query_width()};
    const std::int64_t first_head = t * config.num_key_value_heads / tensor;
    keys = {first_head * config.head_dim, local.kv_width() / 2};
    mlp = share_of(config.intermediate_size, t, tensor);
    vocabulary = share_of(config.vocab_size, t, tensor);
    experts = share_of(config.num_experts, shard.expert_rank, shard.expert);
  }
};

void add_attention(LayoutBuilder& builder, const ModelConfig& config, const Cuts& cuts,
                   const std::string& base) {
  const std::int64_t hidden = config.hidden_size, head = config.head_dim;
  const std::int64_t query = config.query_width(), key = config.kv_width() / 2;
  builder.group();
  builder.vector(base + "input_layernorm.weight", hidden, Holders::replicated);
  builder.group();
  builder.cut_rows(base + "self_attn.q_proj.weight", query, hidden, cuts.query, Holders::sharded);
  builder.cut_rows(base + "self_attn.k_proj.weight", key, hidden, cuts.keys, Holders::keys);
  builder.cut_rows(base + "self_attn.v_proj.weight", key, hidden, cuts.keys, Holders::keys);
  if (config.attention_bias) {
    builder.group();
    builder.vector(base + "self_attn.q_proj.bias", query, cuts.query, Holders::sharded);
    builder.vector(base + "self_attn.k_proj.bias", key, cuts.keys, Holders::keys);
    builder.vector(base + "self_attn.v_proj.bias", key, cuts.keys, Holders::keys);
  }
  if (config.qk_norm) {
    builder.group();
    builder.vector(base + "self_attn.q_norm.weight", head, Holders::replicated);
    builder.group();
    builder.vector(base + "self_attn.k_norm.weight", head, Holders::replicated);
  }
  builder.group();
  builder.cut_cols(base + "self_attn.o_proj.weight", hidden, query, cuts.query, Holders::sharded);
}

void add_mlp(LayoutBuilder& builder, const std::string& base, std::int64_t width,
             std::int64_t hidden, FlatRange here, Holders holders) {
  builder.group();
  builder.cut_rows(base + "gate_proj.weight", width, hidden, here, holders);
  builder.cut_rows(base + "up_proj.weight", width, hidden, here, holders);
  builder.group();
  builder.cut_cols(base + "down_proj.weight", hidden, width, here, holders);
}

void add_mixture(LayoutBuilder& builder, const ModelConfig& config, const Cuts& cuts,
                 const std::string& base) {
  const std::int64_t hidden = config.hidden_size, width = config.moe_intermediate_size;
  builder.group();
  builder.matrix(base + "gate.weight", config.num_experts, hidden, Holders::replicated);
  if (config.freeze_router) builder.freeze_last();
  if (config.router_bias) {
    builder.group();
    builder.vector(base + "gate.expert_bias", config.num_experts, Holders::replicated);
    builder.freeze_last();
  }
  if (config.num_shared_experts > 0) {
    // Whole: a mixture's rows are scattered over the tensor group, not its width.
    add_mlp(builder, base + "shared_experts.", config.shared_width(), hidden,
            {0, config.shared_width()}, Holders::replicated);
  }
  const std::int64_t end = cuts.experts.begin + cuts.experts.count;
  const auto name = [&](std::int64_t expert, const char* which) {
    return fmt::format("{}experts.{}.{}_proj.weight", base, expert, which);
  };
  builder.group();
  for (std::int64_t expert = cuts.experts.begin; expert < end; ++expert) {
    builder.matrix(name(expert, "gate"), width, hidden, Holders::experts);
    builder.matrix(name(expert, "up"), width, hidden, Holders::experts);
  }
  builder.group();
  for (std::int64_t expert = cuts.experts.begin; expert < end; ++expert) {
    builder.matrix(name(expert, "down"), hidden, width, Holders::experts);
  }
}

void add_layer(LayoutBuilder& builder, const ModelConfig& config, const Cuts& cuts,
               std::int64_t layer) {
  const std::string base = fmt::format("model.layers.{}.", layer);
  add_attention(builder, config, cuts, base);
  builder.group();
  builder.vector(base + "post_attention_layernorm.weight", config.hidden_size,
                 Holders::replicated);
  if (config.sparse(layer)) {
    add_mixture(builder, config, cuts, base + "mlp.");
  } else {
    add_mlp(builder, base + "mlp.", config.intermediate_size, config.hidden_size, cuts.mlp,
            Holders::sharded);
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

ParameterLayout layout_of(const ModelConfig& config, const ModelShard& shard) {
  LayoutBuilder builder(config, shard);
  const Cuts cuts(config, shard);
  const auto vocabulary = [&](const char* name, Holders holders) {
    builder.group();
    builder.cut_rows(name, config.vocab_size, config.hidden_size, cuts.vocabulary, holders);
  };
  const bool tied = config.tie_word_embeddings;
  const Holders embedding = tied && shard.pipelined ? Holders::tied : Holders::sharded;

  builder.unit();
  if (shard.first) vocabulary("model.embed_tokens.weight", embedding);
  for (const LayerRange& chunk : shard.chunks) {
    for (std::int64_t layer = chunk.begin; layer < chunk.end; ++layer) {
      builder.unit();
      add_layer(builder, config, cuts, layer);
    }
  }
  builder.unit();
  if (shard.last) {
    builder.group();
    builder.vector("model.norm.weight", config.hidden_size, Holders::replicated);
    if (!tied) {
      vocabulary("lm_head.weight", Holders::sharded);
    } else if (!shard.first) {
      vocabulary("model.embed_tokens.weight", embedding);
    }
  }
  ParameterLayout layout = builder.finish();
  layout.experts = cuts.experts;
  return layout;
}

ParameterLayout layout_of(const ModelConfig& config) {
  return layout_of(config, whole_model(config));
}

}  // namespace bdlm
