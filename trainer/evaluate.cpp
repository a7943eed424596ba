// SPDX-License-Identifier: Apache-2.0
#include "trainer/evaluate.h"

#include <array>
#include <cmath>
#include <numbers>

namespace bdlm {

double Evaluation::perplexity() const { return std::exp(nelbo); }
double Evaluation::bits_per_token() const { return nelbo / std::numbers::ln2; }

Objective evaluation_objective(const Objective& trained) {
  Objective o = trained;
  o.views = Views::one;
  o.range_low = 0;
  o.range_high = 1;
  o.weight = LossWeight::nelbo;
  o.scored = Scored::corrupted;
  o.normalize = Normalize::eligible;
  o.ar_loss_weight = 0;
  o.router_aux_loss_coef = 0;
  o.diffusion_loss_weight = 1;
  if (o.block_size == 1) {
    o.schedule = NoiseSchedule::linear;
    o.range_low = 1;
  }
  return o;
}

Evaluation evaluate(Engine& engine, const RunConfig& config, const DataSource& source,
                    std::int64_t rows, std::int64_t draws,
                    const std::function<void(std::int64_t, std::int64_t)>& progress) {
  RunConfig evaluated = config;
  evaluated.objective = evaluation_objective(config.objective);
  // Its own noise, so that an evaluation never repeats what was trained on.
  const std::uint64_t seed = ~static_cast<std::uint64_t>(config.run.seed);
  const int replicas = engine.mesh().sizes().data, replica = engine.mesh().position().data;
  const RowRange mine = rows_of_replica(rows, replicas, replica);
  // Enough micro-batches in one go to keep the stages of a pipeline busy.
  const int stages = config.parallel.mesh.pipeline;
  const std::int64_t at_once = config.batch.micro_rows * (stages > 1 ? 2 * stages : 1);
  const std::int64_t last = mine.first + most_rows_of(rows, replicas);  // all ranks take part

  // One of the ranks that share a row counts it.
  const MeshPosition at = engine.mesh().position();
  const bool counts_rows = at.tensor == 0 && at.csbp == 0 && at.pipeline == 0;
  double sum = 0;
  std::array<std::int64_t, 2> counts{0, 0};  // scored tokens, tokens
  for (std::int64_t first = mine.first; first < last; first += at_once) {
    for (std::int64_t draw = 1; draw <= draws; ++draw) {
      std::vector<CorruptedRow> part;
      for (std::int64_t row = first; row < std::min(first + at_once, mine.last); ++row)
        part.push_back(corrupt(source.row(row), evaluated.objective,
                               config.model.config.vocab_size, seed, draw));
      StepBatch batch =
          make_step_batch(std::move(part), evaluated, engine.seat(), std::min(at_once, last - first));
      sum += engine.run(batch, {}, false).diffusion;
      if (!counts_rows) continue;
      counts[0] += batch.counts.eligible;
      if (draw == 1) counts[1] += batch.tokens;
    }
    if (progress) progress(std::min(first + at_once, last) - mine.first, last - mine.first);
  }
  engine.mesh().world().all_reduce(std::span(&sum, 1), Reduce::sum);
  engine.mesh().world().all_reduce(counts, Reduce::sum);
  Evaluation result;
  result.rows = rows;
  result.tokens = counts[1];
  result.nelbo = counts[0] > 0 ? sum / static_cast<double>(counts[0]) : 0;
  return result;
}

}  // namespace bdlm
