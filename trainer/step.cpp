// SPDX-License-Identifier: Apache-2.0
#include "trainer/step.h"

#include <array>
#include <cmath>

namespace bdlm {

StepResult forward_backward(Engine& engine, StepBatch& batch, const Objective& objective) {
  StepResult result;
  result.counts = global_counts(batch.counts, engine.mesh().data());
  const LossFactors factors = loss_factors(objective, result.counts);

  const LossSums mine = engine.run(batch, factors, true);
  std::array<double, 3> sums{mine.diffusion, mine.autoregressive, mine.balance};
  engine.mesh().world().all_reduce(sums, Reduce::sum);
  const double diffusion = factors.diffusion * sums[0], ar = factors.autoregressive * sums[1];
  const double balance = factors.balance * sums[2];
  result.loss = diffusion + ar + balance;
  if (objective.router_aux_loss_coef != 0)
    result.aux_loss = balance / objective.router_aux_loss_coef;
  if (objective.diffusion_loss_weight != 0)
    result.diffusion_loss = diffusion / objective.diffusion_loss_weight;
  if (objective.ar_loss_weight != 0) result.ar_loss = ar / objective.ar_loss_weight;
  return result;
}

StepResult train_step(Engine& engine, StepBatch& batch, const RunConfig& config, double lr,
                      std::int64_t update) {
  StepResult result = forward_backward(engine, batch, config.objective);
  result.gradient_norm = engine.optimizer().gradient_norm();
  result.finite = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  const bool scored = result.counts.masked + result.counts.ar_pairs > 0;
  if (!result.finite || !scored) return result;

  const double limit = config.optimizer.clip_grad_norm;
  const double scale =
      limit > 0 && result.gradient_norm > limit ? limit / result.gradient_norm : 1;
  engine.optimizer().update(lr, scale, update);
  result.updated = true;
  return result;
}

}  // namespace bdlm
