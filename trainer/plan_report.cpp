// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan_report.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>

#include "kernels/error.h"
#include "model/parameters.h"
#include "parallel/describe.h"
#include "parallel/mesh_picture.h"
#include "parallel/pipeline_simulation.h"
#include "trainer/memory_plan.h"
#include "trainer/model_placement.h"
#include "trainer/run_config_checks.h"
#include "trainer/sources.h"
#include "trainer/traffic.h"

namespace bdlm {
namespace {

/// Rows of the step for one replica: from the token file, or one whole document each.
std::vector<CorruptedRow> step_rows(const DataSource* source, const RunConfig& config,
                                    std::int64_t step, int replica) {
  const RowRange range = rows_of_replica(config.batch.rows, config.parallel.mesh.data, replica);
  const std::int64_t first = (step - 1) * config.batch.rows;
  std::vector<CorruptedRow> rows;
  for (std::int64_t r = range.first; r < range.last; ++r) {
    PackedRow row;
    if (source != nullptr) {
      row = source->row(first + r);
    } else {
      row.index = first + r;
      row.tokens.assign(static_cast<std::size_t>(config.data.row_tokens), 0);
      row.documents = {config.data.row_tokens};
      row.eligible.assign(row.tokens.size(), 1);
    }
    rows.push_back(corrupt(row, config.objective, config.model.config.vocab_size,
                           static_cast<std::uint64_t>(config.run.seed), step));
  }
  return rows;
}

std::string topology(const RunConfig& config) {
  const MeshSizes& mesh = config.parallel.mesh;
  const ParameterLayout layout = layout_of(config.model.config);
  const std::int64_t micro = (config.batch.rows + config.batch.micro_rows * mesh.data - 1) /
                             (config.batch.micro_rows * mesh.data);
  return fmt::format(
      "ranks          {} = tensor {} x csbp {} x data {} x pipeline {}, experts over {}\n"
      "parameters     {} in {} tensors, zero {}\n"
      "step           {} packed rows of at most {} tokens, {} forward passes of {} a replica\n",
      mesh.ranks(), mesh.tensor, mesh.csbp, mesh.data, mesh.pipeline, mesh.expert, layout.count(),
      layout.tensors.size(), config.parallel.zero, config.batch.rows, config.data.row_tokens, micro,
      config.batch.micro_rows);
}

/// What the schedule of a pipeline costs, before anything is run.
std::string pipeline_lines(const RunConfig& config, int micro_batches) {
  const int stages = config.parallel.mesh.pipeline, chunks = config.parallel.virtual_stages;
  if (stages == 1) return "";
  // A backward pass is about two forward passes.
  const ScheduleFacts facts =
      simulate(config.parallel.schedule, stages, chunks, micro_batches, 1, 2);
  std::string text = fmt::format("\npipeline       {} micro-batches, bubble {:.1f} % of a stage's work\n",
                                 micro_batches, 100 * facts.bubble);
  const std::vector<LayerRange> layers = stage_layers(config);
  for (int stage = 0; stage < stages; ++stage) {
    text += fmt::format("  stage {:3}    layers", stage);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const LayerRange& range = layers[static_cast<std::size_t>(chunk * stages + stage)];
      text += range.count() == 1 ? fmt::format(" {}", range.begin)
                                 : fmt::format(" {}-{}", range.begin, range.end - 1);
    }
    text += fmt::format(", at most {} passes' activations at once\n",
                        facts.peak_in_flight[static_cast<std::size_t>(stage)]);
  }
  return text;
}

/// The first micro-batch of the step on every rank of the first csbp group.
std::string first_pass(std::span<const CorruptedRow> rows, const RunConfig& config) {
  const Objective& o = config.objective;
  const auto count = std::min<std::size_t>(rows.size(),
                                           static_cast<std::size_t>(config.batch.micro_rows));
  const MicroBatch batch = join(rows.first(count), o, 0, views_at_once(config));
  std::vector<std::uint8_t> predicts(batch.ids.size(), 0);
  for (const Target& target : batch.targets) predicts[static_cast<std::size_t>(target.row)] = 1;
  const BatchShape shape{batch.documents, batch.views, o.block_size,
                         o.clean_attention == CleanAttention::causal, predicts,
                         batch.row_tokens};
  LayerShapes model = layer_shapes(config.model.config);
  model.kv_width = local_config(config.model.config, shard_of(config, 0)).kv_width();
  const int csbp = config.parallel.mesh.csbp;
  const auto plans = make_plans(shape, model, config.parallel.plan, csbp, 0, csbp);
  return fmt::format("\nfirst pass: {} tokens in {} documents, {} corrupted views, {} targets\n",
                     batch.tokens, batch.documents.size(), batch.views, batch.targets.size()) +
         describe_plan(plans, shape, model, config.parallel.plan,
                       static_cast<std::int64_t>(size_of(config.run.dtype)),
                       static_cast<std::int64_t>(size_of(accumulate_type(config.run.dtype))));
}

/// Bytes that every rank sends, receives and holds in the whole step.
std::string bytes_table(const DataSource* source, const RunConfig& config, std::int64_t step) {
  const MeshSizes& mesh = config.parallel.mesh;
  std::vector<Traffic> traffic;
  std::string text, memory = "\nmemory of the step at its peak, by kind and together\nrank\n";
  std::array<bool, purposes> used{};
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const MeshPosition at = position_of(mesh, rank);
    const StepBatch batch =
        make_step_batch(step_rows(source, config, step, at.data), config, {mesh.csbp, at.csbp},
                        most_rows_of(config.batch.rows, mesh.data));
    if (rank == 0) text += pipeline_lines(config, static_cast<int>(batch.micro.size()));
    traffic.push_back(
        plan_traffic(batch, config, rank, uniform_routes(batch, config, rank), true));
    for (std::size_t p = 0; p < purposes; ++p)
      used[p] |= traffic.back().by_purpose[p].sent + traffic.back().by_purpose[p].received > 0;
    memory += fmt::format("{:4}  {}\n", rank, describe_memory(plan_memory(config, batch, rank)));
  }
  text += "\nbytes of the step, sent / received\nrank ";
  for (std::size_t p = 0; p < purposes; ++p)
    if (used[p]) text += fmt::format(" {:>30}", name_of(static_cast<Purpose>(p)));
  text += "\n";
  for (std::size_t rank = 0; rank < traffic.size(); ++rank) {
    text += fmt::format("{:4} ", rank);
    for (std::size_t p = 0; p < purposes; ++p) {
      const Traffic::Count& count = traffic[rank].by_purpose[p];
      if (used[p])
        text += fmt::format(" {:>30}", fmt::format("{} / {}", count.sent, count.received));
    }
    text += "\n";
  }
  if (mesh.expert > 1)
    text += "(expert_rows as if routers chose all experts alike: what they choose is in no plan)\n";
  return text + memory;
}

}  // namespace

std::string plan_report(const RunConfig& config, std::int64_t step) {
  std::unique_ptr<DataSource> source;
  if (!config.data.train.empty()) source.reset(new DataSource(training_source(config)));
  const auto rows = step_rows(source.get(), config, step, 0);
  std::string text = topology(config);
  if (!rows.empty()) text += first_pass(rows, config);
  return text + bytes_table(source.get(), config, step);
}

std::string mesh_report(const RunConfig& config) {
  require(has_model(config), "the mesh is drawn with the model's layers: give the model section");
  const auto layers = stage_layers(config);
  return mesh_picture(config.parallel.mesh,
                      {.virtual_stages = config.parallel.virtual_stages,
                       .layers = layers,
                       .experts = config.model.config.num_experts,
                       .tied_embeddings = config.model.config.tie_word_embeddings,
                       .key_copies = key_copies(config),
                       .zero = config.parallel.zero});
}

}  // namespace bdlm
