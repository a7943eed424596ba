// SPDX-License-Identifier: Apache-2.0
// What recomputation may change (memory, work) and what it may not (a single bit of the gradients).
// That loss and gradients are right is shown by bdlm parity.
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "model/decoder.h"

namespace bdlm {
namespace {

/// An exchange for one rank alone.
class NoExchange final : public Exchange {
 public:
  void begin(const LayerPlan&, Tensor, Purpose) override {}
  void resume(const LayerPlan&, KeptShards) override {}
  std::optional<Shard> next() override { return std::nullopt; }
  void progress() override {}
  KeptShards keep() override { return {}; }
  bool keeps() const override { return true; }
  void begin_gradients() override {}
  void give_back(const Shard&) override {}
  void end_gradients(Tensor) override {}
};

ModelConfig small_model() {
  ModelConfig m;
  m.vocab_size = 31;
  m.hidden_size = 64;
  m.intermediate_size = 176;
  m.num_hidden_layers = 4;
  m.num_attention_heads = 4;
  m.num_key_value_heads = 2;
  m.attention_bias = true;
  complete(m);
  return m;
}

struct Outcome {
  std::vector<double> nll, gradients;
  AttentionWork work;
  std::int64_t pairs = 0, peak = 0;
};

Outcome run(Recompute recompute, std::int64_t chunk) {
  const auto device = make_cpu_device(1);
  NoExchange exchange;
  const ModelConfig m = small_model();
  DecoderOptions options;
  options.compute = DType::f64;
  options.recompute.assign(4, recompute);
  options.loss_chunk = chunk;
  Decoder decoder(*device, m, options, exchange, true);
  std::vector<double> weights(static_cast<std::size_t>(decoder.layout().size));
  initialize(m, decoder.layout(), 1, 0, decoder.layout().size, weights.data());
  device->copy_from_host(weights.data(), decoder.weights());

  const std::vector<std::int64_t> documents{150, 1, 77};  // blocks of 8: ragged
  constexpr std::int64_t tokens = 228;
  std::vector<std::uint8_t> predicts(2 * tokens, 0);
  for (std::int64_t i = tokens; i < 2 * tokens; i += 3) predicts[static_cast<std::size_t>(i)] = 1;
  LayerShapes shapes;
  shapes.windows = m.windows();
  shapes.kv_width = m.kv_width();
  const StepPlan plan = make_plan({documents, 1, 8, false, predicts}, shapes, {}, 1, 0);
  DecoderInput input;
  for (const std::int32_t row : plan.at(0).in) input.ids.push_back(row * 7 % 31);
  for (const std::int32_t row : plan.head_rows) {
    input.targets.push_back(row % 31);
    input.weights.push_back(1.0 / (1 + row % 5));
  }

  device->reset_peak();
  Outcome outcome;
  outcome.nll = decoder.loss_and_gradients(plan, input);
  outcome.peak = device->memory().peak_by_kind[static_cast<std::size_t>(Memory::activations)];
  outcome.work = decoder.work();
  for (std::int64_t l = 0; l < plan.layers(); ++l) outcome.pairs += plan.at(l).pairs();
  outcome.gradients.resize(weights.size());
  device->copy_to_host(decoder.gradients(), outcome.gradients.data());
  return outcome;
}

TEST_CASE("recomputation changes no bit, and selective runs no attention twice") {
  const Outcome none = run(Recompute::none, 1000), selective = run(Recompute::selective, 1000),
                full = run(Recompute::full, 1000);
  CHECK(none.nll.size() == 76);
  for (const Outcome* other : {&selective, &full}) {
    CHECK(other->nll == none.nll);
    CHECK(other->gradients == none.gradients);
  }
  CHECK(none.work.forward_pairs == none.pairs);
  CHECK(selective.work.forward_pairs == none.pairs);
  CHECK(full.work.forward_pairs == 2 * none.pairs);
  for (const Outcome* each : {&none, &selective, &full})
    CHECK(each->work.backward_pairs == none.pairs);
  CHECK(selective.peak < none.peak);
  CHECK(full.peak <= selective.peak);
}

TEST_CASE("the loss in chunks of logits is the loss") {
  const Outcome whole = run(Recompute::none, 1000), chunked = run(Recompute::none, 7);
  for (std::size_t i = 0; i < whole.nll.size(); ++i)
    CHECK(chunked.nll[i] == Approx(whole.nll[i]).epsilon(1e-13));
  double error = 0, size = 0;
  for (std::size_t i = 0; i < whole.gradients.size(); ++i) {
    error += std::pow(chunked.gradients[i] - whole.gradients[i], 2);
    size += std::pow(whole.gradients[i], 2);
  }
  CHECK(size > 0);
  CHECK(error < 1e-24 * size);
}

}  // namespace
}  // namespace bdlm
