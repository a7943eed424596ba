// SPDX-License-Identifier: Apache-2.0
#include "trainer/plan_report.h"

#include <algorithm>
#include <iterator>
#include <memory>

#include "kernels/error.h"
#include "model/parameters.h"
#include "parallel/describe.h"
#include "parallel/mesh_picture.h"
#include "trainer/memory_plan.h"
#include "trainer/run_config_checks.h"
#include "trainer/sources.h"
#include "trainer/stage_layers.h"
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
      "ranks          {} = csbp {} x data {}\n"
      "parameters     {} in {} tensors\n"
      "step           {} packed rows of at most {} tokens, {} forward passes of {} a replica\n",
      mesh.ranks(), mesh.csbp, mesh.data, layout.count(), layout.tensors.size(),
      config.batch.rows, config.data.row_tokens, micro, config.batch.micro_rows);
}

/// The first micro-batch of the step on every rank of the first csbp group.
std::string first_pass(std::span<const CorruptedRow> rows, const RunConfig& config) {
  const Objective& o = config.objective;
  const auto count = std::min<std::size_t>(rows.size(),
                                           static_cast<std::size_t>(config.batch.micro_rows));
  const std::int64_t views = config.parallel.plan.elide.second_clean ? o.view_count() : 1;
  const MicroBatch batch = join(rows.first(count), o, 0, views);
  std::vector<std::uint8_t> predicts(batch.ids.size(), 0);
  for (const Target& target : batch.targets) predicts[static_cast<std::size_t>(target.row)] = 1;
  const BatchShape shape{batch.documents, batch.views, o.block_size,
                         o.clean_attention == CleanAttention::causal, predicts};
  const LayerShapes model = layer_shapes(config.model.config);
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
  const ShardLayout shards =
      shard_layout(layout_of(config.model.config).size, mesh.ranks(), config.parallel.bucket_mib,
                   accumulate_type(config.run.dtype));
  std::string text = "\nbytes of the step, sent / received\nrank ";
  for (std::size_t p = 0; p + 1 < purposes; ++p)
    text += fmt::format(" {:>30}", name_of(static_cast<Purpose>(p)));
  text += "\n";
  std::string memory = "\nmemory of the step at its peak, by kind and together\nrank\n";
  for (int data = 0; data < mesh.data; ++data)
    for (int csbp = 0; csbp < mesh.csbp; ++csbp) {
      const Seat seat{mesh.csbp, csbp};
      const StepBatch batch =
          make_step_batch(step_rows(source, config, step, data), config, seat);
      const int rank = data * mesh.csbp + csbp;
      const Traffic traffic = plan_traffic(batch, config, shards, seat, rank, true);
      text += fmt::format("{:4} ", rank);
      for (std::size_t p = 0; p + 1 < purposes; ++p)
        text += fmt::format(" {:>30}", fmt::format("{} / {}", traffic.by_purpose[p].sent,
                                                   traffic.by_purpose[p].received));
      text += "\n";
      const MemoryUse use = plan_memory(config, batch, seat, rank, mesh.ranks());
      memory += fmt::format("{:4}  {}\n", rank, describe_memory(use));
    }
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
                       .experts = experts_of(config.model.config),
                       .tied_embeddings = config.model.config.tie_word_embeddings,
                       .zero = config.parallel.zero});
}

}  // namespace bdlm
