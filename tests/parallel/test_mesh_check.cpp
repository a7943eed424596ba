// SPDX-License-Identifier: Apache-2.0
// Meshes that can and cannot carry a model. What is suggested must itself work.
#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <random>
#include <regex>

#include "parallel/mesh_check.h"

using namespace bdlm;

namespace {

constexpr auto interleaved = PipelineSchedule::interleaved;
const ModelSizes model{.heads = 8, .kv_heads = 4, .layers = 6};
const ModelSizes moe{.heads = 8, .kv_heads = 4, .layers = 6, .experts = 12};

/// The only finding's sentence.
std::string wrong(const MeshRequest& request) {
  const auto findings = check_mesh(request);
  REQUIRE(findings.size() == 1);
  return findings.front().sentence;
}

}  // namespace

TEST_CASE("meshes that work have no finding") {
  CHECK(check_mesh({}).empty());
  CHECK(check_mesh({.sizes = {.tensor = 8}, .world = 8, .model = model}).empty());  // KV repeated
  CHECK(check_mesh({.sizes = {.tensor = 2, .csbp = 3, .pipeline = 3, .expert = 6},
                    .world = 36,
                    .virtual_stages = 2,
                    .schedule = interleaved,
                    .model = moe})
            .empty());
  CHECK(check_mesh({.world = 4, .schedule = interleaved, .model = model}).empty());
}

TEST_CASE("tensor against heads") {
  CHECK(wrong({.sizes = {.tensor = 3}, .world = 3, .model = model}) ==
        "parallel.tensor is 3, which does not divide model.num_attention_heads 8: set "
        "parallel.tensor to 1");
  CHECK(wrong({.sizes = {.tensor = 6}, .world = 24, .model = {12, 4, 6, 0}}) ==
        "parallel.tensor is 6, which neither divides model.num_key_value_heads 4 nor is a multiple "
        "of it: set parallel.tensor to 4 or 12");
}

TEST_CASE("pipeline against layers") {
  CHECK(wrong({.sizes = {.pipeline = 8}, .world = 8, .model = model}) ==
        "parallel.pipeline is 8: a stage would be without a layer, model.num_hidden_layers is 6: "
        "set parallel.pipeline to 4");
  CHECK(wrong({.sizes = {.pipeline = 4},
               .world = 4,
               .virtual_stages = 2,
               .schedule = interleaved,
               .model = model}) ==
        "parallel.pipeline is 4, with parallel.virtual_stages 2 that is 8 stages: a stage would be "
        "without a layer, model.num_hidden_layers is 6: set parallel.pipeline to 2, or "
        "parallel.virtual_stages to 1");
  CHECK(wrong({.sizes = {.pipeline = 8},
               .world = 8,
               .virtual_stages = 2,
               .schedule = interleaved,
               .model = {.heads = 8, .kv_heads = 4, .layers = 3}}) ==
        "parallel.pipeline is 8, with parallel.virtual_stages 2 that is 16 stages: a stage would be "
        "without a layer, model.num_hidden_layers is 3: set parallel.pipeline to 2 with "
        "parallel.virtual_stages 1");
}

TEST_CASE("virtual stages need a pipeline and its schedule") {
  CHECK(wrong({.sizes = {.pipeline = 2}, .world = 2, .virtual_stages = 2}) ==
        "parallel.virtual_stages is 2, but parallel.schedule is 1f1b, which runs one stage a rank: "
        "set parallel.schedule to interleaved, or parallel.virtual_stages to 1");
  CHECK(wrong({.world = 6, .virtual_stages = 3, .schedule = interleaved}) ==
        "parallel.virtual_stages is 3, but with parallel.pipeline 1 there is nothing to "
        "interleave: set parallel.pipeline to 2, or parallel.virtual_stages to 1");
}

TEST_CASE("expert ranks against experts and the ranks of a stage") {
  const auto expert = [](int size, std::int64_t world, const ModelSizes& of) {
    return wrong({.sizes = {.csbp = 2, .expert = size}, .world = world, .model = of});
  };
  CHECK(expert(2, 4, model) ==
        "parallel.expert is 2, but the model has no experts: set parallel.expert to 1");
  CHECK(expert(24, 24, moe) ==
        "parallel.expert is 24, more expert ranks than the model's 12 experts: set parallel.expert "
        "to 12");
  CHECK(expert(8, 8, moe) ==
        "parallel.expert is 8, which does not divide the model's 12 experts: set parallel.expert "
        "to 4");
  CHECK(expert(3, 8, moe) ==
        "parallel.expert is 3, which does not divide the 8 ranks of a pipeline stage (tensor 1 x "
        "csbp 2 x data 4): set parallel.expert to 2 or 4");
  CHECK(expert(3, 8, {}) ==
        "parallel.expert is 3, which does not divide the 8 ranks of a pipeline stage (tensor 1 x "
        "csbp 2 x data 4): set parallel.expert to 2 or 4");
}

TEST_CASE("the launch against the product of the axes") {
  CHECK(wrong({.sizes = {.tensor = 8}, .world = 12, .model = model}) ==
        "12 ranks do not divide into tensor 8: start 8 or 16 ranks, or set parallel.tensor to 4");
  const auto findings =
      check_mesh({.sizes = {.tensor = 5, .csbp = 7}, .world = 12, .model = model});
  REQUIRE(findings.size() == 2);
  CHECK(findings[0].key == "parallel.tensor");
  CHECK(findings[0].sentence == "12 ranks do not divide into tensor 5 x csbp 7: start 35 ranks");
  CHECK(findings[1].sentence ==
        "parallel.tensor is 5, which does not divide model.num_attention_heads 8: set "
        "parallel.tensor to 4 or 8");
  CHECK(check_mesh({.sizes = {.pipeline = 0}}).front().key == "parallel.pipeline");
}

TEST_CASE("sizes that are suggested work") {
  std::mt19937 random(5);
  const auto up_to = [&](int most) {
    return 1 + static_cast<int>(random() % static_cast<unsigned>(most));
  };
  int suggested = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    MeshRequest request{
        .sizes = {.tensor = up_to(6), .csbp = up_to(4), .pipeline = up_to(6), .expert = up_to(4)},
        .world = up_to(48),
        .virtual_stages = up_to(3),
        .schedule = interleaved,
        .model = {up_to(2) * 12, 4, up_to(12), 12}};
    const auto findings = check_mesh(request);
    if (findings.size() != 1) continue;
    const std::string& text = findings.front().sentence;
    static const std::regex choice(R"((start|parallel\.\w+ to) (\d+)(?: or (\d+))?)");
    const std::string ways = text.substr(text.rfind(": ") + 2);
    for (std::sregex_iterator it(ways.begin(), ways.end(), choice), end; it != end; ++it) {
      for (const std::size_t group : {2, 3}) {
        if (!(*it)[group].matched) continue;
        const int size = std::stoi((*it)[group]);
        const std::string what = (*it)[1];
        MeshRequest changed = request;
        if (ways.ends_with("with parallel.virtual_stages 1")) changed.virtual_stages = 1;
        if (what == "start") changed.world = size;
        if (what == "parallel.tensor to") changed.sizes.tensor = size;
        if (what == "parallel.csbp to") changed.sizes.csbp = size;
        if (what == "parallel.pipeline to") changed.sizes.pipeline = size;
        if (what == "parallel.expert to") changed.sizes.expert = size;
        if (what == "parallel.virtual_stages to") changed.virtual_stages = size;
        CAPTURE(text, what, size);
        CHECK(check_mesh(changed).empty());
        ++suggested;
      }
    }
  }
  CHECK(suggested > 500);
}

TEST_CASE("sizes beyond any launch are refused at once") {  // without a search through them
  constexpr int huge = std::numeric_limits<int>::max();
  const auto sentence = [](const MeshSizes& sizes) {
    return check_mesh({.sizes = sizes, .world = 8, .model = moe}).front().sentence;
  };
  CHECK(sentence({.tensor = huge, .csbp = huge, .pipeline = huge}) ==
        "8 ranks do not divide into tensor 2147483647 x csbp 2147483647 x pipeline 2147483647");
  CHECK(sentence({.csbp = huge}) ==
        "8 ranks do not divide into csbp 2147483647: set parallel.csbp to 8");
  CHECK(sentence({.expert = huge}) ==
        "parallel.expert is 2147483647, more expert ranks than the model's 12 experts: set "
        "parallel.expert to 4");
  CHECK(smallest_world({.tensor = huge, .csbp = huge, .pipeline = huge, .expert = huge}) == huge);
}

TEST_CASE("the fewest ranks for a mesh") {
  CHECK(smallest_world({}) == 1);
  CHECK(smallest_world({.tensor = 2, .csbp = 2, .pipeline = 3}) == 12);
  CHECK(smallest_world({.tensor = 2, .csbp = 2, .pipeline = 2, .expert = 8}) == 16);
  CHECK(smallest_world({.csbp = 3, .expert = 2}) == 6);
}
