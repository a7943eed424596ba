// SPDX-License-Identifier: Apache-2.0
// Saved by the ranks of one mesh, loaded by those of another: tensor, pipeline and experts too.
#include "model/families.h"
#include "tests/trainer/lockstep_group.h"
#include "tests/trainer/model_worlds.h"
#include "tests/trainer/test_checkpoint_state.h"
#include "trainer/checkpoint_manifest.h"

using namespace bdlm;
using namespace bdlm::test;
using Catch::Contains;

namespace {

/// 12 heads and 2 key/value heads admit 1, 2, 4 and 6 tensor ranks, 3 key/value heads 1, 3 and 6.
/// Nothing else divides.
ModelConfig mixture(std::int64_t keys, bool tied) {
  ModelConfig config = family_defaults("llada2_moe");
  config.vocab_size = 13;
  config.hidden_size = 10;
  config.intermediate_size = 7;
  config.num_hidden_layers = 5;
  config.num_attention_heads = 12;
  config.num_key_value_heads = keys;
  config.head_dim = 4;
  config.num_experts = 5;
  config.num_experts_per_tok = 2;
  config.moe_intermediate_size = 3;
  config.num_shared_experts = 1;
  config.first_k_dense_replace = 2;
  config.n_group = config.topk_group = 1;
  config.attention_bias = true;
  config.tie_word_embeddings = tied;
  complete(config);
  return config;
}

/// Another value for every kind and logical element, exact in float32.
class Truth {
 public:
  explicit Truth(const ModelConfig& config) : whole_(layout_of(config)) {}
  const ParameterLayout& whole() const { return whole_; }

  /// By element of the rank's flat range; gaps are zero.
  std::vector<double> of(const ParameterLayout& layout, int kind) const {
    std::vector<double> out(static_cast<std::size_t>(layout.size), 0.0);
    for (const Parameter& tensor : layout.tensors) {
      const std::int64_t first = whole_.at(tensor.name).offset;
      for (const LogicalRun& run : logical_runs(tensor, 0, layout.size))
        for (std::int64_t i = 0; i < run.count; ++i)
          out[static_cast<std::size_t>(run.local + i)] =
              static_cast<double>(1 + kind + 3 * (first + run.first + i)) / 64;
    }
    return out;
  }

 private:
  ParameterLayout whole_;
};

std::vector<std::vector<double>> kinds(const Truth& truth, const ParameterLayout& layout) {
  return {truth.of(layout, 0), truth.of(layout, 1), truth.of(layout, 2)};
}

void save(const Folder& folder, const Truth& truth, const std::vector<WorldRank>& ranks,
          DType type = DType::f64) {
  LockstepWorld world(static_cast<int>(ranks.size()));
  world.run([&](Communicator& group) {
    const WorldRank& here = ranks[static_cast<std::size_t>(group.rank())];
    State state(here.parts, type);
    const auto values = kinds(truth, here.layout);
    state.each([&](int kind, std::int64_t element, const Tensor& tensor, std::int64_t i) {
      const double value =
          values[static_cast<std::size_t>(kind)][static_cast<std::size_t>(element)];
      if (type == DType::f64)
        tensor.as<double>()[i] = value;
      else
        tensor.as<float>()[i] = static_cast<float>(value);
    });
    save_checkpoint(group, MeshSizes{}, folder.path.string(), {1, 1, 1, 0, 1}, "run: {}\n",
                    truth.whole(), here.layout, state.share, 0);
  });
}

/// Elements that one rank loads otherwise than they are.
std::int64_t wrong(const CheckpointInfo& info, const Truth& truth, const ParameterLayout& layout,
                   const std::vector<FlatRange>& parts) {
  State got(parts, DType::f64);
  got.each([&](int, std::int64_t, const Tensor& tensor, std::int64_t i) {
    tensor.as<double>()[i] = -9;
  });
  load_checkpoint(info, truth.whole(), layout, true, got.share);
  std::int64_t count = 0;
  const auto values = kinds(truth, layout);
  got.each([&](int kind, std::int64_t element, const Tensor& tensor, std::int64_t i) {
    count += tensor.as<double>()[i] !=
             values[static_cast<std::size_t>(kind)][static_cast<std::size_t>(element)];
  });
  return count;
}

}  // namespace

TEST_CASE("a checkpoint of any mesh loads on any other") {
  for (const std::int64_t keys : {2, 3}) {
    const ModelConfig config = mixture(keys, keys == 2);
    const Truth truth(config);
    std::vector<WorldSizes> meshes{{1, 1, 1, 1, 1}, {1, 3, 1, 1, 1}, {1, 1, 3, 1, 1},
                                   {1, 2, 2, 2, 2}, {6, 1, 1, 1, 3}, {1, 5, 1, 1, 5}};
    if (keys == 2) {
      meshes.push_back({2, 1, 2, 1, 2});
      meshes.push_back({4, 2, 1, 1, 2});
    } else {
      meshes.push_back({3, 1, 2, 1, 3});
      meshes.push_back({3, 2, 1, 1, 2});
    }
    for (std::size_t i = 0; i < meshes.size(); ++i) {
      const WorldSizes& from = meshes[i];
      Folder folder("/dev/shm");
      save(folder, truth, world_ranks(config, from));
      const CheckpointInfo info = open_checkpoint(folder.path.string());
      CHECK(verify_checkpoint(info).empty());
      for (const std::size_t step : {0, 1, 3, 6}) {  // every mesh from and to four
        const WorldSizes& to = meshes[(i + step) % meshes.size()];
        CAPTURE(keys, from.tensor, from.pipeline, from.expert, to.tensor, to.replicas, to.pipeline,
                to.expert);
        std::int64_t errors = 0;
        for (const WorldRank& rank : world_ranks(config, to))
          errors += wrong(info, truth, rank.layout, rank.parts);
        CHECK(errors == 0);
      }
      // As evaluation does: all that a rank holds.
      const WorldRank rank = world_ranks(config, meshes.back()).back();
      CHECK(wrong(info, truth, rank.layout, {{0, rank.layout.size}}) == 0);
    }
  }
}

TEST_CASE("the manifest lists the whole model whatever the ranks hold") {
  const ModelConfig config = mixture(2, true);
  const Truth truth(config);
  Folder folder("/dev/shm");
  save(folder, truth, world_ranks(config, {2, 1, 2, 1, 2}), DType::f32);
  const CheckpointInfo info = open_checkpoint(folder.path.string());
  const Manifest manifest = read_manifest(info.folder);
  CHECK(manifest.files.size() == 4);
  REQUIRE(manifest.tensors.size() == truth.whole().tensors.size());
  for (std::size_t i = 0; i < manifest.tensors.size(); ++i) {
    const Parameter& tensor = truth.whole().tensors[i];
    CHECK(manifest.tensors[i].name == tensor.name);
    CHECK(manifest.tensors[i].shape == shape_of(tensor));
  }
  std::int64_t masters = 0, biases = 0;
  for (const StoredFile& file : manifest.files) {
    for (const StoredDataset& dataset : file.datasets) {
      if (dataset.kind != StateKind::master) continue;
      masters += dataset.count();
      if (dataset.tensor.ends_with("expert_bias")) biases += dataset.count();
    }
  }
  CHECK(masters == truth.whole().count());
  CHECK(biases == 3 * 5);  // frozen tensors are kept

  ModelConfig other = config;
  other.vocab_size = 14;
  const WorldRank rank = world_ranks(other, {2, 1, 2, 1, 2}).front();
  State state(rank.parts, DType::f32);
  CHECK_THAT(error_of([&] { load_checkpoint(info, other, rank.layout, true, state.share); }),
             Contains("model.embed_tokens.weight is [13, 10], the model's is [14, 10]"));
}

TEST_CASE("an element that two ranks save or none is refused") {
  const ModelConfig config = mixture(2, false);
  const Truth truth(config);
  std::vector<WorldRank> ranks = world_ranks(config, {2, 1, 1, 1, 1});
  std::vector<WorldRank> broken = ranks;
  broken[1].parts.erase(broken[1].parts.begin());
  Folder missing("/dev/shm");
  save(missing, truth, broken);
  CHECK_THAT(verify_checkpoint(open_checkpoint(missing.path.string())), Contains("is not stored"));

  broken = ranks;
  const FlatRange replicated = ranks[1].layout.sets[static_cast<std::size_t>(Holders::replicated)];
  broken[0].parts = {{0, ranks[0].layout.size}};  // with what the other holds too and owns
  REQUIRE(replicated.count > 0);
  Folder twice("/dev/shm");
  save(twice, truth, broken);
  CHECK_THAT(verify_checkpoint(open_checkpoint(twice.path.string())), Contains("is stored twice"));
}
