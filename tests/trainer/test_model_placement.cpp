// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include "trainer/model_placement.h"

using namespace bdlm;

namespace {

std::vector<LayerRange> cut(const std::string& model, const std::string& parallel, int world) {
  return stage_layers(
      parse_run_file("model: {hidden_size: 32, intermediate_size: 64, "
                     "num_attention_heads: 4, " +
                         model + "}\n" + "data: {row_tokens: 4096}\nparallel: {" + parallel + "}",
                     "/work/run.yaml", {}, world));
}

}  // namespace

TEST_CASE("layers of a run are cut into its virtual stages") {
  const std::string small = "vocab_size: 64, num_hidden_layers: 8";
  CHECK(cut(small, "", 1) == std::vector<LayerRange>{{0, 8}});
  CHECK(cut(small, "pipeline: 2, virtual_stages: 2, schedule: interleaved", 2) ==
        std::vector<LayerRange>{{0, 2}, {2, 4}, {4, 6}, {6, 8}});
}

TEST_CASE("a large vocabulary leaves the last stage fewer layers") {
  const auto stages = cut("vocab_size: 65536, num_hidden_layers: 8", "pipeline: 2", 2);
  CHECK(stages[1].count() < stages[0].count());
}

TEST_CASE("layers with a short window cost less") {
  const std::string windows =
      "vocab_size: 64, num_hidden_layers: 6, sliding_window: 1, layer_types: [full_attention, "
      "full_attention, sliding_attention, sliding_attention, sliding_attention, "
      "sliding_attention]";
  const auto stages = cut(windows, "pipeline: 2", 2);
  CHECK(stages[0].count() < stages[1].count());
}
