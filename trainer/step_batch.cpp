// SPDX-License-Identifier: Apache-2.0
#include "trainer/step_batch.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "data/fingerprint.h"
#include "model/layer_costs.h"
#include "trainer/flops.h"

namespace bdlm {
namespace {

BatchShape shape_of(const MicroBatch& batch, const Objective& objective,
                    std::span<const std::uint8_t> predicts) {
  return {batch.documents, batch.views, objective.block_size,
          objective.clean_attention == CleanAttention::causal, predicts, batch.row_tokens};
}

MicroStep make_micro_step(const MicroBatch& batch, const RunConfig& config,
                          const LayerShapes& shapes, Seat seat) {
  std::vector<std::uint8_t> predicts(batch.ids.size(), 0);
  for (const Target& target : batch.targets) predicts[static_cast<std::size_t>(target.row)] = 1;

  MicroStep micro;
  micro.plan = make_plan(shape_of(batch, config.objective, predicts), shapes,
                         config.parallel.plan, seat.ranks, seat.rank);
  for (const std::int32_t row : micro.plan.at(0).in)
    micro.input.ids.push_back(batch.ids[static_cast<std::size_t>(row)]);
  // Both lists ascend by row id; rows without a target (elide: none) get weight 0.
  auto target = batch.targets.begin();
  for (const std::int32_t row : micro.plan.head_rows) {
    while (target != batch.targets.end() && target->row < row) ++target;
    const bool scored = target != batch.targets.end() && target->row == row;
    micro.input.targets.push_back(scored ? target->token : 0);
    micro.input.weights.push_back(scored ? target->weight : 0);
    micro.kinds.push_back(scored ? target->kind : TargetKind::diffusion);
  }
  return micro;
}

}  // namespace

LayerShapes layer_shapes(const ModelConfig& m) {
  LayerShapes shapes;
  shapes.windows = m.windows();
  shapes.kv_width = m.kv_width();
  // One deal for all layers, so of unlike layers the mean counts.
  const std::vector<double> costs = layer_costs(m);
  shapes.row_cost = std::accumulate(costs.begin(), costs.end(), 0.0) /
                     static_cast<double>(costs.size());
  shapes.pair_cost = 12 * static_cast<double>(m.query_width());
  return shapes;
}

std::int64_t views_at_once(const RunConfig& config) {
  const bool together =
      config.parallel.plan.elide.second_clean || config.objective.router_aux_loss_coef > 0;
  return together ? config.objective.view_count() : 1;
}

StepBatch make_step_batch(std::vector<CorruptedRow> rows, const RunConfig& config, Seat seat,
                          std::int64_t most_rows) {
  const Objective& objective = config.objective;
  LayerShapes shapes = layer_shapes(config.model.config);
  shapes.balance = objective.router_aux_loss_coef > 0;
  const std::int64_t views = objective.view_count(), at_once = views_at_once(config);

  StepBatch batch;
  for (const CorruptedRow& row : rows) {
    batch.rows.push_back(row.clean.index);
    batch.tokens += row.clean.size();
    batch.counts += count(row, objective);
    batch.fingerprint += fingerprint(row);
  }
  const auto micro_rows = static_cast<std::size_t>(config.batch.micro_rows);
  for (std::size_t first = 0; first < static_cast<std::size_t>(most_rows); first += micro_rows) {
    const auto left = std::span<const CorruptedRow>(rows).subspan(std::min(first, rows.size()));
    const auto part = left.first(std::min(micro_rows, left.size()));
    for (std::int64_t view = 0; view < views; view += at_once)
      batch.micro.push_back(
          make_micro_step(join(part, objective, view, at_once), config, shapes, seat));
  }
  // The ranks of a tensor group and the stages share a plan's work.
  const MeshSizes& mesh = config.parallel.mesh;
  for (const MicroStep& micro : batch.micro)
    batch.flops += useful_flops(micro.plan, config.model.config) / (mesh.tensor * mesh.pipeline);
  return batch;
}

RowRange rows_of_replica(std::int64_t rows, int replicas, int data) {
  return {rows * data / replicas, rows * (data + 1) / replicas};
}

std::int64_t most_rows_of(std::int64_t rows, int replicas) {
  return (rows + replicas - 1) / replicas;
}

}  // namespace bdlm
