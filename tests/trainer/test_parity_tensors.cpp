// SPDX-License-Identifier: Apache-2.0
// Every rank compares what it owns: the sums are those of the whole model on any mesh.
#include <catch2/catch.hpp>
#include <cmath>

#include "kernels/error.h"
#include "tests/trainer/lockstep_group.h"
#include "tests/trainer/model_worlds.h"
#include "trainer/parity_tensors.h"

using namespace bdlm;
using namespace bdlm::test;
using Catch::Contains;

namespace {

ModelConfig mixture() {
  ModelConfig config = family_defaults("llada2_moe");
  config.vocab_size = 13;
  config.hidden_size = 6;
  config.intermediate_size = 7;
  config.num_hidden_layers = 4;
  config.num_attention_heads = 4;
  config.num_key_value_heads = 2;
  config.head_dim = 4;
  config.num_experts = 5;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 3;
  config.num_shared_experts = 1;
  config.first_k_dense_replace = 1;
  config.n_group = config.topk_group = 1;
  config.attention_bias = config.tie_word_embeddings = true;
  complete(config);
  return config;
}

double value_of(const ParameterLayout& whole, const std::string& name, std::int64_t element) {
  if (name.ends_with("expert_bias")) return 0;  // a frozen tensor's gradient
  return std::sin(static_cast<double>(whole.at(name).offset + element)) + 2;
}

std::map<std::string, std::vector<double>> golden_of(const ModelConfig& config) {
  const ParameterLayout whole = layout_of(config);
  std::map<std::string, std::vector<double>> out;
  for (const DiskTensor& disk : disk_tensors(config, whole)) {
    for (const std::string& part : disk.parts)
      for (std::int64_t i = 0; i < whole.at(part).size(); ++i)
        out[disk.name].push_back(value_of(whole, part, i));
  }
  return out;
}

std::vector<double> owned_values(const ModelConfig& config, const WorldRank& rank) {
  const ParameterLayout whole = layout_of(config);
  std::vector<double> flat(static_cast<std::size_t>(rank.layout.size)), out;
  for (const Parameter& tensor : rank.layout.tensors)
    for (const LogicalRun& run : logical_runs(tensor, 0, rank.layout.size))
      for (std::int64_t i = 0; i < run.count; ++i)
        flat[static_cast<std::size_t>(run.local + i)] = value_of(whole, tensor.name, run.first + i);
  for (const FlatRange& part : rank.parts)
    out.insert(out.end(), flat.begin() + part.begin, flat.begin() + part.begin + part.count);
  return out;
}

/// As rank 0 sees it. change(rank, its state, its values) comes first.
template <class Change>
TensorsComparison compare(const ModelConfig& config, const WorldSizes& sizes,
                          const std::map<std::string, std::vector<double>>& golden, Change change) {
  const auto ranks = world_ranks(config, sizes);
  TensorsComparison result;
  LockstepWorld world(sizes.ranks());
  world.run([&](Communicator& group) {
    WorldRank here = ranks[static_cast<std::size_t>(group.rank())];
    std::vector<double> values = owned_values(config, here);
    change(group.rank(), here, values);
    const TensorsComparison mine =
        compare_owned(config, here.layout, here.parts, values, golden, group);
    if (group.rank() == 0) result = mine;
  });
  return result;
}

constexpr auto unchanged = [](int, WorldRank&, std::vector<double>&) {};

const std::vector<WorldSizes> meshes{
    {1, 1, 1, 1, 1}, {1, 3, 1, 1, 1}, {4, 1, 1, 1, 2}, {2, 1, 2, 2, 2}, {1, 5, 1, 1, 5}};

}  // namespace

TEST_CASE("equal tensors differ by nothing on any mesh", "[parity_tensors]") {
  const ModelConfig config = mixture();
  const auto golden = golden_of(config);
  double squares = 0;
  for (const auto& [name, values] : golden)
    for (const double v : values) squares += v * v;
  for (const WorldSizes& sizes : meshes) {
    CAPTURE(sizes.tensor, sizes.replicas, sizes.pipeline, sizes.expert);
    const TensorsComparison result = compare(config, sizes, golden, unchanged);
    CHECK(result.tensors.size() == golden.size());
    for (const TensorComparison& tensor : result.tensors) CHECK(tensor.error == 0);
    CHECK(result.norm == Approx(std::sqrt(squares)).epsilon(1e-14));
  }
}

TEST_CASE("a wrong element shows in its tensor on disk only", "[parity_tensors]") {
  const ModelConfig config = mixture();
  auto golden = golden_of(config);
  const std::string name = "model.layers.2.attention.query_key_value.weight";
  double norm = 0;
  golden.at(name)[100] += 3;  // in k_proj
  for (const double v : golden.at(name)) norm += v * v;
  const std::string frozen = "model.layers.1.mlp.gate.expert_bias";
  golden.at(frozen)[4] = 1e-9;  // measured against all tensors together
  for (const WorldSizes& sizes : meshes) {
    CAPTURE(sizes.tensor, sizes.replicas, sizes.pipeline, sizes.expert);
    for (const TensorComparison& tensor : compare(config, sizes, golden, unchanged).tensors) {
      INFO(tensor.name);
      if (tensor.name == name) {
        CHECK(tensor.error == Approx(3 / std::sqrt(norm)).epsilon(1e-12));
      } else if (tensor.name == frozen) {
        CHECK(tensor.error > 0);
        CHECK(tensor.error < 1e-4);
      } else {
        CHECK(tensor.error == 0);
      }
    }
  }
}

TEST_CASE("elements that nobody or two ranks own are an error", "[parity_tensors]") {
  const ModelConfig config = mixture();
  const auto golden = golden_of(config);
  const auto drop = [](int rank, WorldRank& here, std::vector<double>& values) {
    if (rank != 1) return;
    values.erase(values.begin(), values.begin() + here.parts.front().count);
    here.parts.erase(here.parts.begin());
  };
  CHECK_THROWS_WITH(compare(config, {2, 1, 2, 2, 2}, golden, drop), Contains("elements of"));
  const auto twice = [](int rank, WorldRank& here, std::vector<double>& values) {
    if (rank != 1) return;
    const std::vector<double> first(values.begin(), values.begin() + here.parts.front().count);
    values.insert(values.begin(), first.begin(), first.end());
    here.parts.insert(here.parts.begin(), here.parts.front());
  };
  CHECK_THROWS_WITH(compare(config, {2, 1, 2, 2, 2}, golden, twice), Contains("elements of"));
  auto fewer = golden;
  fewer.erase("model.norm.weight");
  CHECK_THROWS_WITH(compare(config, {1, 1, 1, 1, 1}, fewer, unchanged),
                    Contains("no tensor model.norm.weight"));
  auto more = golden;
  more["model.extra"] = {1};
  CHECK_THROWS_WITH(compare(config, {1, 1, 1, 1, 1}, more, unchanged), Contains("tensors"));
}
