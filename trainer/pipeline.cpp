// SPDX-License-Identifier: Apache-2.0
#include "trainer/pipeline.h"

#include <utility>

namespace bdlm {
namespace {

bool is_forward(const PipelineAction& action) {
  return action.kind == PipelineAction::Kind::forward;
}

/// Weights times the terms' factors while it lives.
class ScaledWeights {
 public:
  ScaledWeights(StepBatch& batch, const LossFactors& factors) : batch_(batch) {
    for (MicroStep& micro : batch.micro) {
      raw_.push_back(micro.input.weights);
      for (std::size_t i = 0; i < micro.kinds.size(); ++i)
        micro.input.weights[i] *= micro.kinds[i] == TargetKind::diffusion ? factors.diffusion
                                                                          : factors.autoregressive;
    }
  }
  ~ScaledWeights() {
    for (std::size_t m = 0; m < raw_.size(); ++m)
      batch_.micro[m].input.weights = std::move(raw_[m]);
  }
  ScaledWeights(const ScaledWeights&) = delete;
  ScaledWeights& operator=(const ScaledWeights&) = delete;

 private:
  StepBatch& batch_;
  std::vector<std::vector<double>> raw_;
};

}  // namespace

Pipeline::Pipeline(const RunConfig& config, Device& device, Mesh& mesh, Decoder& model,
                   ShardedParameters& parameters)
    : config_(config), device_(device), mesh_(mesh), model_(model), parameters_(parameters) {
  if (mesh.sizes().pipeline > 1) model_.after_layer = [this] { progress(); };
}

/// A library without a progress thread moves data only when it is called.
void Pipeline::progress() {
  if (asked_.transfer) asked_.transfer->progress();
  for (const Rows& rows : leaving_)
    if (rows.transfer) rows.transfer->progress();
}

LossSums Pipeline::run(StepBatch& batch, const LossFactors& factors, bool train) {
  const int stages = mesh_.sizes().pipeline, stage = mesh_.position().pipeline;
  const int chunks = config_.parallel.virtual_stages;
  const auto micro_batches = static_cast<int>(batch.micro.size());
  const auto actions =
      train ? pipeline_actions(config_.parallel.schedule, stages, chunks, micro_batches, stage)
            : forward_actions(config_.parallel.schedule, stages, chunks, micro_batches, stage);
  model_.begin_balance(factors.balance);

  std::vector<Pass> passes(batch.micro.size());
  {
    const ScaledWeights scaled(batch, factors);
    if (!actions.empty()) asked_ = ask(batch, actions.front());
    for (std::size_t i = 0; i < actions.size(); ++i) {
      const PipelineAction& action = actions[i];
      Rows rows = std::move(asked_);
      if (i + 1 < actions.size()) asked_ = ask(batch, actions[i + 1]);
      const auto m = static_cast<std::size_t>(action.micro);
      if (is_forward(action) && action.chunk == 0)
        passes[m] = model_.begin(batch.micro[m].plan, batch.micro[m].input, train);
      parameters_.complete_gradients(action.micro + 1 == micro_batches);
      Buffer made = run_action(action, passes[m], std::move(rows));
      if (made) send(is_forward(action) ? Flow::activations : Flow::gradients, std::move(made));
      const bool last = is_forward(action) ? !train && action.chunk + 1 == chunks : action.chunk == 0;
      if (last) passes[m].finish();
      if (trace) {
        std::int64_t held = 0;
        for (const Pass& pass : passes) held += pass.layers_held();
        trace(held);
      }
    }
    for (Rows& rows : leaving_) {
      if (rows.transfer) rows.transfer->wait_all();
      rows = {};
    }
  }
  return sums_of(batch, passes);
}

/// Posts the receipt of what the action reads; nothing for an end of the pipeline.
Pipeline::Rows Pipeline::ask(const StepBatch& batch, const PipelineAction& action) {
  const auto chunk = static_cast<std::size_t>(action.chunk);
  const StepPlan& plan = batch.micro[static_cast<std::size_t>(action.micro)].plan;
  const bool forward = is_forward(action);
  if (forward ? model_.embeds(chunk) : model_.ends(chunk)) return {};
  Rows rows;
  rows.memory = device_.allocate(forward ? model_.rows_in(plan, chunk) : model_.rows_out(plan, chunk),
                                 model_.config().hidden_size, model_.stream(),
                                 Memory::activations);
  const Message message = message_of(rows.memory, forward ? 0 : 1);
  Communicator& link = forward ? mesh_.to_previous(Flow::activations)
                               : mesh_.to_next(Flow::gradients);
  rows.transfer = link.post({&message, 1}, {}, Purpose::pipeline_rows);
  return rows;
}

Buffer Pipeline::run_action(const PipelineAction& action, Pass& pass, Rows rows) {
  if (rows.transfer) rows.transfer->wait_all();
  rows.transfer.reset();
  const auto chunk = static_cast<std::size_t>(action.chunk);
  return is_forward(action) ? model_.forward(pass, chunk, std::move(rows.memory))
                            : model_.backward(pass, chunk, std::move(rows.memory));
}

void Pipeline::send(Flow flow, Buffer made) {
  Rows& rows = leaving_[static_cast<std::size_t>(flow)];
  if (rows.transfer) rows.transfer->wait_all();
  rows = {};
  rows.memory = std::move(made);
  // In a link's group the earlier stage has place 0.
  const Message message = message_of(rows.memory, flow == Flow::activations ? 1 : 0);
  Communicator& link = flow == Flow::activations ? mesh_.to_next(flow) : mesh_.to_previous(flow);
  rows.transfer = link.post({}, {&message, 1}, Purpose::pipeline_rows);
}

LossSums Pipeline::sums_of(const StepBatch& batch, const std::vector<Pass>& passes) const {
  LossSums sums;
  sums.balance = model_.balance_sum();
  if (mesh_.position().tensor != 0) return sums;  // all ranks of the group have the same losses
  for (std::size_t m = 0; m < passes.size(); ++m) {
    const MicroStep& micro = batch.micro[m];
    const std::vector<double> nll = passes[m].losses(device_);
    for (std::size_t i = 0; i < nll.size(); ++i) {
      const double weight = micro.input.weights[i];
      if (weight == 0) continue;  // computed only because elide is off
      (micro.kinds[i] == TargetKind::diffusion ? sums.diffusion : sums.autoregressive) +=
          weight * nll[i];
    }
  }
  return sums;
}

}  // namespace bdlm
