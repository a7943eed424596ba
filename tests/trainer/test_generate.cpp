// SPDX-License-Identifier: Apache-2.0
// Generation with a cache must say what the training pass over the same tokens says.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "model/whole_model.h"
#include "trainer/generate.h"

namespace bdlm {
namespace {

ModelConfig tiny_model() {
  ModelConfig m;
  m.vocab_size = 23;
  m.hidden_size = 16;
  m.intermediate_size = 24;
  m.num_hidden_layers = 3;
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.head_dim = 8;
  m.qk_norm = true;
  m.sliding_window = 6;
  m.layer_types = {"full_attention", "sliding_attention", "full_attention"};
  m.initializer_range = 0.5;  // answers that differ clearly
  complete(m);
  return m;
}

Objective objective_of(CleanAttention clean, int shift) {
  Objective o;
  o.block_size = 4;
  o.clean_attention = clean;
  o.target_shift = shift;
  o.mask_token_id = 22;
  return o;
}

struct Model {
  explicit Model(Device& device)
      : cache(device, config, DType::f64),
        whole(device, config,
              {DType::f64, DType::f64, std::vector<Recompute>(3, Recompute::none)}, cache, false),
        decoder(whole.decoder()) {
    std::vector<double> weights(static_cast<std::size_t>(decoder.layout().size));
    initialize(config, decoder.layout(), 5, 0, decoder.layout().size, weights.data());
    device.copy_from_host(weights.data(), whole.weights());
  }
  ModelConfig config = tiny_model();
  KeyValueCache cache;
  WholeModel whole;
  Decoder& decoder;
};

/// The next block by the training pass: clean prefix and one corrupted block of masks at its end.
/// All of its tokens are taken at once.
std::vector<std::int32_t> next_block(Model& model, Device& device, const Objective& o,
                                     std::vector<std::int32_t> tokens, std::int64_t length) {
  const auto known = static_cast<std::int64_t>(tokens.size());
  const std::int64_t start = known / o.block_size * o.block_size;
  const std::int64_t total = start + length;
  std::vector<std::int32_t> noisy = tokens;
  tokens.resize(static_cast<std::size_t>(total), 0);  // never read: nothing sees its own clean block
  noisy.resize(static_cast<std::size_t>(total), static_cast<std::int32_t>(o.mask_token_id));
  std::vector<std::uint8_t> predicts(static_cast<std::size_t>(2 * total), 0);
  std::vector<std::int64_t> rows;
  for (std::int64_t i = known; i < total; ++i) {
    // The token before a block is clean when the block is begun.
    const std::int64_t row =
        o.target_shift == 1 && i == start ? i - 1 : total + i - o.target_shift;
    rows.push_back(row);
    predicts[static_cast<std::size_t>(row)] = 1;
  }
  const std::vector<std::int64_t> documents{total};
  LayerShapes shapes;
  shapes.windows = model.config.windows();
  shapes.kv_width = model.config.kv_width();
  const StepPlan plan =
      make_plan({documents, 1, o.block_size, o.clean_attention == CleanAttention::causal, predicts},
                shapes, {}, 1, 0);
  std::vector<std::int32_t> ids;
  for (const std::int32_t row : plan.at(0).in)
    ids.push_back(row < total ? tokens[static_cast<std::size_t>(row)]
                              : noisy[static_cast<std::size_t>(row - total)]);
  const Buffer logits = model.decoder.logits(plan, ids);
  std::vector<double> host(static_cast<std::size_t>(logits.tensor().size()));
  device.copy_to_host(logits, host.data());
  std::vector<std::int32_t> block;
  for (const std::int64_t row : rows) {
    const auto at = std::find(plan.head_rows.begin(), plan.head_rows.end(), row);
    const double* line =
        host.data() + (at - plan.head_rows.begin()) * model.config.vocab_size;
    block.push_back(static_cast<std::int32_t>(
        std::max_element(line, line + o.mask_token_id) - line));  // the mask is the last id
  }
  return block;
}

TEST_CASE("generation with a cache equals the training pass, block by block") {
  const auto device = make_cpu_device(1);
  for (const CleanAttention clean : {CleanAttention::block_causal, CleanAttention::causal})
    for (const int shift : {0, 1})
      for (const std::size_t prompt_length : {1u, 4u, 9u}) {
        const Objective o = objective_of(clean, shift);
        std::vector<std::int32_t> prompt;
        for (std::size_t i = 0; i < prompt_length; ++i)
          prompt.push_back(static_cast<std::int32_t>((7 * i + 3) % 22));
        GenerateOptions options;
        options.max_tokens = 18;
        options.steps = 1;

        Model cached(*device), plain(*device);
        const auto got = generate(cached.decoder, cached.cache, *device, o, prompt, options);

        std::vector<std::int32_t> tokens = prompt;
        const std::size_t end = prompt.size() + 18;
        while (tokens.size() < end) {
          const std::size_t start = tokens.size() / 4 * 4;
          const auto length = static_cast<std::int64_t>(std::min<std::size_t>(4, end - start));
          const auto block = next_block(plain, *device, o, tokens, length);
          tokens.insert(tokens.end(), block.begin(), block.end());
        }
        CHECK(got == std::vector<std::int32_t>(
                         tokens.begin() + static_cast<std::ptrdiff_t>(prompt.size()), tokens.end()));
      }
}

TEST_CASE("generation: steps fill a block a part at a time, and never with the mask") {
  const auto device = make_cpu_device(1);
  const Objective o = objective_of(CleanAttention::block_causal, 0);
  GenerateOptions options;
  options.max_tokens = 40;
  options.temperature = 5;  // nearly uniform: every id comes up
  options.confidence = 2;
  Model model(*device);
  std::size_t blocks = 0;
  const auto tokens = generate(model.decoder, model.cache, *device, o, {}, options,
                               [&](std::span<const std::int32_t>) { ++blocks; });
  CHECK(tokens.size() == 40);
  CHECK(blocks == 10);
  CHECK(std::count(tokens.begin(), tokens.end(), 22) == 0);
  CHECK_THROWS_WITH(generate(model.decoder, model.cache, *device,
                             objective_of(CleanAttention::causal, 1), {}, options),
                    Catch::Contains("prompt"));
}

}  // namespace
}  // namespace bdlm
