// SPDX-License-Identifier: Apache-2.0
// What recomputation may change (memory, work) and what it may not (a single bit of the gradients),
// and what a wider residual stream does. That loss and gradients are right is shown by bdlm parity.
#include <catch2/catch.hpp>
#include <cmath>
#include <optional>
#include <vector>

#include "kernels/dispatch.h"
#include "model/whole_model.h"

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

std::vector<double> in_double(Device& device, Tensor x) {
  std::vector<double> host(static_cast<std::size_t>(x.size()));
  const Buffer wide = device.allocate(x.rows, x.cols, DType::f64, Memory::workspace);
  device.copy(x, wide);
  device.copy_to_host(wide, host.data());
  return host;
}

/// Norm of the difference over the norm of the expected.
double relative_error(const std::vector<double>& got, const std::vector<double>& expected) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(got.at(i) - expected[i], 2);
    size += std::pow(expected[i], 2);
  }
  return std::sqrt(error / size);
}

Outcome run(Recompute recompute, std::int64_t chunk, DType compute = DType::f64,
            DType residual = DType::f64) {
  const auto device = make_cpu_device(1);
  NoExchange exchange;
  const ModelConfig m = small_model();
  DecoderOptions options;
  options.compute = compute;
  options.residual = residual;
  options.recompute.assign(4, recompute);
  options.loss_chunk = chunk;
  WholeModel whole(*device, m, options, exchange, true);
  Decoder& decoder = whole.decoder();
  std::vector<double> weights(static_cast<std::size_t>(decoder.layout().size));
  initialize(m, decoder.layout(), 1, 0, decoder.layout().size, weights.data());
  for (double& w : weights) w = convert<double>(convert<bfloat16>(w));  // the same in every dtype
  const Buffer wide = device->allocate(1, decoder.layout().size, DType::f64, Memory::workspace);
  device->copy_from_host(weights.data(), wide);
  device->copy(wide, whole.weights());

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
  outcome.gradients = in_double(*device, whole.gradients());
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
  CHECK(relative_error(chunked.gradients, whole.gradients) < 1e-12);
}

TEST_CASE("a float32 residual stream brings bfloat16 nearer to float64 and takes more memory") {
  const auto in_bfloat16 = [](Recompute recompute, DType residual) {
    return run(recompute, 1000, DType::bf16, residual);
  };
  const Outcome exact = run(Recompute::none, 1000);
  const Outcome plain = in_bfloat16(Recompute::none, DType::bf16);
  const Outcome wide = in_bfloat16(Recompute::none, DType::f32);
  CHECK(relative_error(wide.nll, exact.nll) < 0.7 * relative_error(plain.nll, exact.nll));
  CHECK(relative_error(wide.gradients, exact.gradients) <
        0.9 * relative_error(plain.gradients, exact.gradients));
  CHECK(wide.peak > plain.peak);
  const Outcome full = in_bfloat16(Recompute::full, DType::f32);
  CHECK(full.nll == wide.nll);
  CHECK(full.gradients == wide.gradients);
  CHECK_THROWS_AS(run(Recompute::none, 1000, DType::f32, DType::f64), Error);
}

}  // namespace
}  // namespace bdlm
