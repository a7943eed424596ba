// SPDX-License-Identifier: Apache-2.0
#include "trainer/engine.h"

#include <algorithm>
#include <array>
#include <vector>

#include "model/safetensors.h"
#include "trainer/agree.h"
#include "trainer/traffic.h"

namespace bdlm {

DecoderOptions decoder_options(const RunConfig& config) {
  DecoderOptions options;
  options.compute = config.run.dtype;
  options.residual = config.run.residual == Residual::float32 ? accumulate_type(config.run.dtype)
                                                              : config.run.dtype;
  options.recompute = config.recompute;
  options.keep_remote_kv = keeps_remote_kv(config);
  options.loss_chunk = config.batch.loss_chunk;
  options.excluded = config.objective.exclude_mask_token ? config.objective.mask_token_id : -1;
  return options;
}

Engine::Engine(const RunConfig& config, Device& device, Mesh& mesh, Mode mode)
    : config_(config),
      device_(device),
      mesh_(mesh),
      exchange_(make_exchange(config.parallel.plan.exchange, device, mesh.csbp(),
                              config.model.config.kv_width(), config.run.dtype)),
      model_(std::make_unique<Decoder>(device, config.model.config, decoder_options(config),
                                       *exchange_, mode == Mode::train)) {
  if (mode == Mode::train)
    optimizer_ = std::make_unique<ShardedAdamW>(device, *model_, mesh.replicas(), config.optimizer,
                                                config.parallel.bucket_mib);
}

Seat Engine::seat() const { return {mesh_.sizes().csbp, mesh_.position().csbp}; }

void Engine::fill_weights(
    const std::function<void(std::int64_t, std::int64_t, double*)>& source) {
  if (optimizer_) {
    optimizer_->start(source);
    return;
  }
  const Tensor weights = model_->weights();
  constexpr std::int64_t at_once = 1 << 20;
  std::vector<double> host;
  for (std::int64_t begin = 0; begin < weights.cols; begin += at_once) {
    const std::int64_t count = std::min(at_once, weights.cols - begin);
    host.resize(static_cast<std::size_t>(count));
    source(begin, count, host.data());
    const Buffer wide = device_.allocate(1, count, DType::f64, Memory::workspace);
    device_.copy_from_host(host.data(), wide);
    device_.copy(wide, weights.slice_cols(begin, count));
  }
}

void Engine::initialize() {
  const ModelConfig& m = config_.model.config;
  const ParameterLayout& layout = model_->layout();
  if (config_.model.weights == WeightSource::random) {
    const auto seed = static_cast<std::uint64_t>(config_.run.seed);
    fill_weights([&](std::int64_t begin, std::int64_t count, double* out) {
      bdlm::initialize(m, layout, seed, begin, count, out);
    });
    return;
  }
  const SafetensorsFolder files(config_.model.from);
  check_tensors(files, m);
  fill_weights([&](std::int64_t begin, std::int64_t count, double* out) {
    read_parameters(files, m, layout, begin, count, out);
  });
}

void Engine::load(const CheckpointInfo& checkpoint) {
  if (optimizer_) {
    HostState state = optimizer_->empty_state();
    agree(mesh_.world(), [&] {
      load_checkpoint(checkpoint, config_.model.config, model_->layout(), true, state.share());
    });
    optimizer_->load(state);
    return;
  }
  agree(mesh_.world(), [&] { load_weights(checkpoint, *model_, device_); });
}

void load_weights(const CheckpointInfo& checkpoint, Decoder& decoder, Device& device) {
  const Tensor weights = decoder.weights();
  HostState state;
  state.parts = {{0, weights.cols}};
  state.dtype = accumulate_type(weights.dtype);
  state.master.resize(static_cast<std::size_t>(weights.cols) * size_of(state.dtype));
  load_checkpoint(checkpoint, decoder.config(), decoder.layout(), false, state.share());
  if (weights.dtype == state.dtype) {
    device.copy_from_host(state.master.data(), weights);
    return;
  }
  const Buffer wide = device.allocate(1, weights.cols, state.dtype, Memory::workspace);
  device.copy_from_host(state.master.data(), wide);
  device.copy(wide, weights);
}

Engine::LossSums Engine::run(StepBatch& batch, const Factors& factors, bool gradients) {
  LossSums sums;
  for (MicroStep& micro : batch.micro) {
    if (gradients && &micro == &batch.micro.back()) optimizer_->begin_reduction();
    const std::vector<double> raw = micro.input.weights;
    for (std::size_t i = 0; i < raw.size(); ++i)
      micro.input.weights[i] *= micro.kinds[i] == TargetKind::diffusion ? factors.diffusion
                                                                        : factors.autoregressive;
    const std::vector<double> nll = gradients
                                        ? model_->loss_and_gradients(micro.plan, micro.input)
                                        : model_->loss(micro.plan, micro.input);
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] == 0) continue;  // computed only because elide is off
      (micro.kinds[i] == TargetKind::diffusion ? sums.diffusion : sums.autoregressive) +=
          raw[i] * nll[i];
    }
    micro.input.weights = raw;
  }
  return sums;
}

Engine::Factors loss_factors(const Objective& objective, const LossCounts& global) {
  const std::int64_t n = objective.normalize == Normalize::masked     ? global.masked
                         : objective.normalize == Normalize::sequence ? global.documents
                                                                      : global.eligible;
  const std::int64_t pairs =
      objective.ar_normalize == ArNormalize::shared ? n : global.ar_pairs;
  const auto over = [](double weight, std::int64_t count) {
    return count > 0 ? weight / static_cast<double>(count) : 0;
  };
  return {over(objective.diffusion_loss_weight, n), over(objective.ar_loss_weight, pairs)};
}

LossCounts global_counts(const LossCounts& mine, Communicator& data) {
  std::array<std::int64_t, 4> values{mine.eligible, mine.masked, mine.documents, mine.ar_pairs};
  data.all_reduce(values, Reduce::sum);
  return {values[0], values[1], values[2], values[3]};
}

}  // namespace bdlm
