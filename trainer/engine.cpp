// SPDX-License-Identifier: Apache-2.0
#include "trainer/engine.h"

#include <algorithm>
#include <array>
#include <vector>

#include "model/safetensors.h"
#include "trainer/agree.h"
#include "trainer/model_placement.h"
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

ZeroOptions zero_options(const RunConfig& config, Mode mode) {
  return {config.parallel.zero, config.parallel.bucket_mib, config.run.dtype, mode == Mode::train};
}

Engine::Engine(const RunConfig& config, Device& device, Mesh& mesh, Mode mode)
    : config_(config),
      device_(device),
      mesh_(mesh),
      shard_(shard_of(config, mesh.rank())),
      exchange_(make_exchange(config.parallel.plan.exchange, device, mesh.csbp(),
                              local_config(config.model.config, shard_).kv_width(),
                              config.run.dtype)),
      parameters_(device, mesh, layout_of(config.model.config, shard_), zero_options(config, mode)),
      model_(device, config.model.config, shard_, decoder_options(config),
             {*exchange_, mesh.along(Axis::tensor), mesh.along(Axis::row), mesh.along(Axis::expert)},
             parameters_),
      pipeline_(config, device, mesh, model_, parameters_) {
  if (mode == Mode::train)
    optimizer_ =
        std::make_unique<ShardedAdamW>(device, parameters_, mesh.world(), config.optimizer);
}

Seat Engine::seat() const { return {mesh_.sizes().csbp, mesh_.position().csbp}; }

void Engine::initialize() {
  const ModelConfig& m = config_.model.config;
  const ParameterLayout& layout = parameters_.layout();
  const auto start = [&](const ShardedParameters::Source& source) {
    optimizer_ ? optimizer_->start(source) : parameters_.fill(source);
  };
  if (config_.model.weights == WeightSource::random) {
    const auto seed = static_cast<std::uint64_t>(config_.run.seed);
    start([&](std::int64_t begin, std::int64_t count, double* out) {
      bdlm::initialize(m, layout, seed, begin, count, out);
    });
    return;
  }
  const SafetensorsFolder files(config_.model.from);
  check_tensors(files, m);
  start([&](std::int64_t begin, std::int64_t count, double* out) {
    read_parameters(files, m, layout, begin, count, out);
  });
}

void Engine::load(const CheckpointInfo& checkpoint) {
  const ParameterLayout& layout = parameters_.layout();
  if (optimizer_) {
    HostState state = optimizer_->empty_state();
    agree(mesh_.world(), [&] {
      load_checkpoint(checkpoint, config_.model.config, layout, true, state.share());
    });
    optimizer_->load(state);
    return;
  }
  HostState state =
      host_state(parameters_.owned_parts(), accumulate_type(config_.run.dtype), false);
  agree(mesh_.world(), [&] {
    load_checkpoint(checkpoint, config_.model.config, layout, false, state.share());
  });
  parameters_.fill([&](std::int64_t begin, std::int64_t count, double* out) {
    state.masters(begin, count, out);
  });
}

void load_weights(const CheckpointInfo& checkpoint, const ModelConfig& model,
                  const ParameterLayout& layout, Tensor weights, Device& device) {
  HostState state = host_state({{0, weights.cols}}, accumulate_type(weights.dtype), false);
  load_checkpoint(checkpoint, model, layout, false, state.share());
  const Buffer wide = device.allocate(1, weights.cols, state.dtype, Memory::workspace);
  device.copy_from_host(state.master.data(), wide);
  device.copy(wide, weights);
}

LossSums Engine::run(StepBatch& batch, const LossFactors& factors, bool gradients) {
  if (gradients) parameters_.zero_gradients();
  const LossSums sums = pipeline_.run(batch, factors, gradients);
  if (gradients) parameters_.finish_reduction();
  return sums;
}

LossFactors loss_factors(const Objective& objective, const LossCounts& global) {
  const std::int64_t n = objective.normalize == Normalize::masked     ? global.masked
                         : objective.normalize == Normalize::sequence ? global.documents
                                                                      : global.eligible;
  const std::int64_t pairs =
      objective.ar_normalize == ArNormalize::shared ? n : global.ar_pairs;
  const auto over = [](double weight, std::int64_t count) {
    return count > 0 ? weight / static_cast<double>(count) : 0;
  };
  return {over(objective.diffusion_loss_weight, n), over(objective.ar_loss_weight, pairs),
          over(objective.router_aux_loss_coef, global.rows)};
}

LossCounts global_counts(const LossCounts& mine, Communicator& data) {
  std::array<std::int64_t, 5> values{mine.eligible, mine.masked, mine.documents, mine.ar_pairs,
                                     mine.rows};
  data.all_reduce(values, Reduce::sum);
  return {values[0], values[1], values[2], values[3], values[4]};
}

}  // namespace bdlm
