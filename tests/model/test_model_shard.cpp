// SPDX-License-Identifier: Apache-2.0
// Which rank holds which element of the model, in which set, for many ways to cut it.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "kernels/error.h"
#include "model/parameters.h"

using namespace bdlm;

namespace {

/// Four layers, three of them mixtures, sizes that divide by nothing but themselves.
ModelConfig mixture(std::int64_t keys, bool tied) {
  ModelConfig config;
  config.vocab_size = 13;
  config.hidden_size = 10;
  config.intermediate_size = 7;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 12;
  config.num_key_value_heads = keys;
  config.head_dim = 2;
  config.num_experts = 5;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 3;
  config.num_shared_experts = 2;
  config.first_k_dense_replace = 1;
  config.router_sigmoid = config.router_bias = true;
  config.attention_bias = config.qk_norm = true;
  config.tie_word_embeddings = tied;
  return config;
}

/// A stage's layers and ends, for `stages` stages of `chunks` virtual ones.
std::vector<ModelShard> pipeline(const ModelConfig& config, int stages, int chunks) {
  std::vector<ModelShard> out(static_cast<std::size_t>(stages));
  for (int stage = 0; stage < stages; ++stage) {
    ModelShard& shard = out[static_cast<std::size_t>(stage)];
    shard.pipelined = stages > 1;
    shard.first = stage == 0;
    shard.last = stage == stages - 1;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const FlatRange layers =
          share_of(config.num_hidden_layers, chunk * stages + stage, stages * chunks);
      shard.chunks.push_back({layers.begin, layers.begin + layers.count});
    }
  }
  return out;
}

std::int64_t layer_of(const std::string& name) {
  constexpr std::string_view stem = "model.layers.";
  return name.starts_with(stem) ? std::stoll(name.substr(stem.size())) : -1;
}

bool has(const std::string& name, const char* part) { return name.find(part) != std::string::npos; }

/// The rules once more, element by element. `row` of a vector is its element.
bool holds(const ModelConfig& c, const ModelShard& s, const std::string& name, std::int64_t row,
           std::int64_t col) {
  const std::int64_t layer = layer_of(name);
  if (layer >= 0) {
    const bool here = std::ranges::any_of(s.chunks, [&](const LayerRange& chunk) {
      return layer >= chunk.begin && layer < chunk.end;
    });
    if (!here) return false;
  } else if (name == "model.norm.weight" || name == "lm_head.weight") {
    if (!s.last) return false;
  } else if (!(s.first || (c.tie_word_embeddings && s.last))) {
    return false;
  }
  const auto in_share = [&](std::int64_t element, std::int64_t size, int rank, int ranks) {
    return size * rank / ranks <= element && element < size * (rank + 1) / ranks;
  };
  const std::int64_t heads = c.num_attention_heads, keys = c.num_key_value_heads;
  if (has(name, "q_proj")) return row / c.head_dim / (heads / s.tensor) == s.tensor_rank;
  if (has(name, "o_proj")) return col / c.head_dim / (heads / s.tensor) == s.tensor_rank;
  if (has(name, "k_proj") || has(name, "v_proj")) {
    const std::int64_t head = row / c.head_dim;
    return keys >= s.tensor ? head / (keys / s.tensor) == s.tensor_rank
                            : s.tensor_rank / (s.tensor / keys) == head;
  }
  if (has(name, "shared_experts")) return true;
  if (has(name, ".experts.")) {
    const std::int64_t expert = std::stoll(name.substr(name.find(".experts.") + 9));
    return in_share(expert, c.num_experts, s.expert_rank, s.expert);
  }
  if (has(name, "gate_proj") || has(name, "up_proj"))
    return in_share(row, c.intermediate_size, s.tensor_rank, s.tensor);
  if (has(name, "down_proj")) return in_share(col, c.intermediate_size, s.tensor_rank, s.tensor);
  if (has(name, "embed_tokens") || has(name, "lm_head"))
    return in_share(row, c.vocab_size, s.tensor_rank, s.tensor);
  return true;  // norms and routers
}

Holders expected_set(const ModelConfig& c, const ModelShard& s, const std::string& name) {
  const bool cut = s.tensor > 1;
  if (has(name, "embed_tokens"))
    return c.tie_word_embeddings && s.pipelined ? Holders::tied : Holders::sharded;
  if (has(name, "k_proj") || has(name, "v_proj"))
    return s.tensor > c.num_key_value_heads ? Holders::keys : Holders::sharded;
  if (has(name, ".experts."))
    return s.expert > 1 ? Holders::experts : cut ? Holders::replicated : Holders::sharded;
  if (has(name, "norm") || has(name, "mlp.gate.") || has(name, "shared_experts"))
    return cut ? Holders::replicated : Holders::sharded;
  return Holders::sharded;
}

void check_places(const ParameterLayout& layout, const ModelShard& shard) {
  // Sets tile the flat range, units tile a set, tensors stand in their unit without overlap.
  REQUIRE(layout.units.size() == static_cast<std::size_t>(shard.layers()) + 2);
  std::int64_t end = 0;
  std::size_t next = 0;
  std::map<std::int64_t, std::size_t> unit_of;
  std::size_t unit = 1;
  for (const LayerRange& chunk : shard.chunks)
    for (std::int64_t layer = chunk.begin; layer < chunk.end; ++layer) unit_of[layer] = unit++;
  for (std::size_t set = 0; set < holder_sets; ++set) {
    CHECK(layout.sets[set].begin == end);
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
      const FlatRange part = layout.units[u][set];
      CHECK(part.begin == end);
      CHECK(part.begin % 64 == 0);
      std::int64_t at = part.begin;
      bool any = false;
      for (; next < layout.tensors.size() &&
             layout.tensors[next].offset + layout.tensors[next].size() <= part.begin + part.count &&
             static_cast<std::size_t>(layout.tensors[next].holders) == set;
           ++next) {
        const Parameter& tensor = layout.tensors[next];
        const std::int64_t layer = layer_of(tensor.name);
        const bool end_unit =
            tensor.name == "model.norm.weight" || tensor.name == "lm_head.weight" || !shard.first;
        if (layer < 0 && u != (end_unit ? layout.units.size() - 1 : 0)) break;
        if (layer >= 0 && u != unit_of.at(layer)) break;
        CHECK(tensor.offset >= at);
        CHECK(tensor.offset - at < 64);
        at = tensor.offset + tensor.size();
        any = true;
      }
      CHECK((any || part.count == 0));
      CHECK(part.begin + part.count - at < 64);
      end = part.begin + part.count;
    }
    CHECK(layout.sets[set].begin + layout.sets[set].count == end);
  }
  CHECK(next == layout.tensors.size());
  CHECK(end == layout.size);
}

/// Every rank of T x X x stages against the rules, and against the whole model's initial values.
void check_all(const ModelConfig& config, int tensor, int expert, int stages, int chunks) {
  const ParameterLayout whole = layout_of(config);
  std::vector<double> values(static_cast<std::size_t>(whole.size));
  initialize(config, whole, 5, 0, whole.size, values.data());
  for (ModelShard shard : pipeline(config, stages, chunks)) {
    shard.tensor = tensor;
    shard.expert = expert;
    for (shard.tensor_rank = 0; shard.tensor_rank < tensor; ++shard.tensor_rank) {
      for (shard.expert_rank = 0; shard.expert_rank < expert; ++shard.expert_rank) {
        CAPTURE(tensor, expert, stages, chunks, shard.tensor_rank, shard.expert_rank, shard.first);
        const ParameterLayout layout = layout_of(config, shard);
        check_places(layout, shard);
        std::vector<double> own(static_cast<std::size_t>(layout.size), -9);
        initialize(config, layout, 5, 0, layout.size, own.data());
        std::size_t wrong = 0, names = 0;
        for (const Parameter& all : whole.tensors) {
          const auto found = layout.index.find(all.name);
          std::set<std::int64_t> logical;
          if (found != layout.index.end()) {
            ++names;
            const Parameter& part = layout.tensors[found->second];
            CHECK(part.name == all.name);
            CHECK(part.whole_rows == all.rows);
            CHECK(part.whole_cols == all.cols);
            CHECK(part.vector == all.vector);
            CHECK(part.frozen == has(all.name, "expert_bias"));
            CHECK(part.holders == expected_set(config, shard, all.name));
            std::int64_t local = part.offset;
            for (const LogicalRun& run : logical_runs(part, 0, layout.size)) {
              CHECK(run.local == local);
              CHECK(run.count > 0);
              for (std::int64_t i = 0; i < run.count; ++i) {
                wrong += !logical.insert(run.first + i).second;
                wrong += own[static_cast<std::size_t>(run.local + i)] !=
                         values[static_cast<std::size_t>(all.offset + run.first + i)];
              }
              local += run.count;
            }
            CHECK(local == part.offset + part.size());
          }
          for (std::int64_t e = 0; e < all.size(); ++e) {
            const std::int64_t row = all.vector ? e : e / all.cols;
            wrong += holds(config, shard, all.name, row, e % all.cols) != logical.contains(e);
          }
        }
        CHECK(wrong == 0);
        CHECK(names == layout.tensors.size());
      }
    }
  }
}

}  // namespace

TEST_CASE("every element of the model is where the rules put it", "[model_shard]") {
  for (const int tensor : {1, 2, 3, 4}) {
    for (const std::int64_t keys : {1, 2, 3, 4, 12}) {
      const bool fits = keys % tensor == 0 || tensor % keys == 0;
      if (!fits) continue;
      const ModelConfig config = mixture(keys, keys % 2 == 0);
      check_all(config, tensor, 1, 1, 1);
      check_all(config, tensor, 2, 2, 1);
      check_all(config, tensor, 3, 2, 2);
      check_all(config, tensor, 5, 3, 1);
    }
  }
}

TEST_CASE("a vocabulary or a width smaller than the tensor group leaves empty parts",
          "[model_shard]") {
  ModelConfig config = mixture(4, false);
  config.vocab_size = 3;
  config.intermediate_size = 2;
  check_all(config, 4, 1, 1, 1);
  config.tie_word_embeddings = true;
  check_all(config, 4, 2, 2, 1);

  ModelShard shard = whole_model(config);
  shard.tensor = 4;
  const ParameterLayout layout = layout_of(config, shard);
  CHECK(layout.at("model.embed_tokens.weight").rows == 0);
  CHECK(layout.at("model.layers.0.mlp.down_proj.weight").cols == 0);
  CHECK(logical_runs(layout.at("model.layers.0.mlp.down_proj.weight"), 0, layout.size).empty());
  CHECK(local_config(config, shard).intermediate_size == 0);
}

TEST_CASE("shares differ by one at most and leave nothing out", "[model_shard]") {
  for (const std::int64_t size : {0, 1, 3, 13, 151936}) {
    for (const int ranks : {1, 2, 3, 7}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const FlatRange share = share_of(size, rank, ranks);
        CHECK(share.begin == end);
        CHECK(share.count >= size / ranks);
        CHECK(share.count <= (size + ranks - 1) / ranks);
        end += share.count;
      }
      CHECK(end == size);
    }
  }
}

TEST_CASE("heads that the tensor group cannot cut are refused", "[model_shard]") {
  ModelConfig config = mixture(3, false);
  ModelShard shard = whole_model(config);
  shard.tensor = 2;
  CHECK_THROWS_WITH(layout_of(config, shard),
                    Catch::Contains("3 key/value heads cannot be cut over 2 tensor ranks"));
  shard.tensor = 5;
  CHECK_THROWS_WITH(local_config(config, shard),
                    Catch::Contains("12 attention heads cannot be cut over 5 tensor ranks"));
  shard.tensor = 6;
  CHECK(local_config(config, shard).num_attention_heads == 2);
  CHECK(local_config(config, shard).num_key_value_heads == 1);
}

TEST_CASE("runs begin and end inside rows", "[model_shard]") {
  Parameter part{.name = "w",
                 .rows = 3,
                 .cols = 4,
                 .offset = 100,
                 .whole_rows = 8,
                 .whole_cols = 10,
                 .first_row = 2,
                 .first_col = 5};
  const auto runs = logical_runs(part, 102, 7);  // columns 2, 3 | 0 .. 3 | 0
  REQUIRE(runs.size() == 3);
  CHECK(std::tuple(runs[0].first, runs[0].count, runs[0].local) == std::tuple(27, 2, 102));
  CHECK(std::tuple(runs[1].first, runs[1].count, runs[1].local) == std::tuple(35, 4, 104));
  CHECK(std::tuple(runs[2].first, runs[2].count, runs[2].local) == std::tuple(45, 1, 108));
  CHECK(logical_runs(part, 0, 100).empty());
  CHECK(logical_runs(part, 112, 50).empty());
  part.whole_cols = 4;
  part.first_col = 0;
  CHECK(logical_runs(part, 0, 1000).size() == 1);
}

TEST_CASE("a mixture's tensors are views of stacked experts", "[model_shard]") {
  const ModelConfig config = mixture(4, false);
  ModelShard shard = whole_model(config);
  shard.expert = 2;
  shard.expert_rank = 1;  // experts 2, 3, 4
  shard.tensor = 4;
  shard.tensor_rank = 3;
  const ParameterLayout layout = layout_of(config, shard);
  CHECK(layout.experts == FlatRange{2, 3});
  std::vector<double> memory(static_cast<std::size_t>(layout.size));
  const ParameterMemory place = in_flat({memory.data(), 1, layout.size, layout.size, DType::f64});
  const auto check = [&](const Tensor& tensor, const std::string& name, std::int64_t rows,
                         std::int64_t cols) {
    INFO(name);
    CHECK(tensor.as<double>() == memory.data() + layout.at("model.layers.2.mlp." + name).offset);
    CHECK(tensor.rows == rows);
    CHECK(tensor.cols == cols);
    CHECK(tensor.contiguous());
  };
  const LayerTensors sparse = view_layer(config, layout, 2, place);
  check(sparse.router, "gate.weight", 5, 10);
  check(sparse.router_bias, "gate.expert_bias", 1, 5);
  check(sparse.gate_up, "shared_experts.gate_proj.weight", 12, 10);
  check(sparse.down, "shared_experts.down_proj.weight", 10, 6);
  check(sparse.expert_gate_up, "experts.2.gate_proj.weight", 18, 10);
  check(sparse.expert_gate_up.slice_rows(15, 3), "experts.4.up_proj.weight", 3, 10);
  check(sparse.expert_down, "experts.2.down_proj.weight", 30, 3);
  check(sparse.expert_down.slice_rows(10, 10), "experts.3.down_proj.weight", 10, 3);
  CHECK(sparse.q.rows == 6);
  CHECK(sparse.o.cols == 6);
  CHECK(sparse.kv.rows == 4);

  const LayerTensors dense = view_layer(config, layout, 0, place);
  CHECK(dense.router.empty());
  CHECK(dense.expert_down.empty());
  CHECK(dense.gate_up.rows == 4);  // elements 5, 6 of 7
  CHECK(dense.down.cols == 2);

  ModelConfig frozen = config;
  frozen.freeze_router = true;
  CHECK(layout_of(frozen, shard).at("model.layers.2.mlp.gate.weight").frozen);
  CHECK_FALSE(layout_of(frozen, shard).at("model.layers.0.mlp.gate_proj.weight").frozen);
}

TEST_CASE("every set is used by a mixture on four tensor ranks with a tied embedding",
          "[model_shard]") {
  const ModelConfig config = mixture(2, true);
  ModelShard shard = pipeline(config, 2, 1)[1];
  shard.tensor = 4;
  shard.expert = 2;
  const ParameterLayout layout = layout_of(config, shard);
  for (std::size_t set = 0; set < holder_sets; ++set) {
    INFO(name_of(static_cast<Holders>(set)));
    CHECK(layout.sets[set].count > 0);
  }
  const ParameterMemory place = [](Holders, FlatRange range) {
    return Tensor{nullptr, 1, range.count, range.count, DType::f32};
  };
  CHECK(view_head(config, layout, place, place).head.rows == 3);
  shard.first = false;
  shard.last = false;
  const ParameterLayout middle = layout_of(config, shard);
  CHECK_FALSE(middle.index.contains("model.embed_tokens.weight"));
  CHECK_THROWS_AS(view_embedding(middle, place), Error);
}
