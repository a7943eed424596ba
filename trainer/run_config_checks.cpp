// SPDX-License-Identifier: Apache-2.0
// Rules between keys. Each one names both, so that either can be changed.
#include "trainer/run_config_checks.h"

#include "kernels/error.h"
#include "parallel/mesh_check.h"

namespace bdlm {
namespace {

void check_objective(const Objective& o, const Report& report) {
  const bool uniform = o.corruption == Corruption::uniform;
  if (o.views == Views::complementary && uniform) {
    report(
        "objective.views",
        "complementary hides each token in one of two views, which objective.corruption: uniform "
        "cannot do: use views: 1 or corruption: mask");
  }
  if (o.views == Views::complementary && o.scored == Scored::eligible) {
    report(
        "objective.views",
        "complementary makes every token a target once, with objective.scored: eligible it would "
        "be one twice: use scored: corrupted");
  }
  if (o.weight == LossWeight::nelbo && o.range_low == 0) {
    report("objective.range",
           "starts at 0, where the weight of objective.weight: nelbo is infinite: start above 0 "
           "(1e-3 is usual) or use weight: none");
  }
  if (o.autoregressive() && o.clean_attention == CleanAttention::block_causal && o.block_size > 1) {
    report("objective.ar_loss_weight",
           "asks for next-token prediction, but with objective.clean_attention: block_causal a "
           "token sees the ones ahead in its block: use clean_attention: causal");
  }
  if (!o.autoregressive() && o.diffusion_loss_weight == 0) {
    report("objective.diffusion_loss_weight",
           "and objective.ar_loss_weight are both 0: nothing would be trained");
  }
  if (o.exclude_mask_token && uniform && o.mask_token_id < 0) {
    report("objective.exclude_mask_token",
           "is true, but with objective.corruption: uniform there is no mask token: give "
           "objective.mask_token_id or leave it out");
  }
}

void check_sizes(const RunConfig& c, const Report& report) {
  const std::int64_t vocabulary = c.model.config.vocab_size, mask = c.objective.mask_token_id;
  if (has_model(c) && mask >= vocabulary) {
    report("objective.mask_token_id",
           fmt::format("is {}, outside model.vocab_size {}", mask, vocabulary));
  }
  if (has_model(c) && c.objective.router_aux_loss_coef > 0 && c.model.config.num_experts == 0) {
    report("objective.router_aux_loss_coef",
           fmt::format("is {}, but model.model_type {} has no experts to balance: leave it out",
                       c.objective.router_aux_loss_coef, c.model.config.family));
  }
  if (c.batch.micro_rows > c.batch.rows) {
    report("batch.micro_rows",
           fmt::format("is {}, more than batch.rows {}", c.batch.micro_rows, c.batch.rows));
  }
  if (c.objective.block_size > c.data.row_tokens) {
    report("objective.block_size",
           fmt::format("is {}, more than data.row_tokens {}: no block would "
                       "be whole",
                       c.objective.block_size, c.data.row_tokens));
  }
  if (c.data.eval.empty() && c.eval.every > 0) {
    report("eval.every", fmt::format("is {}, but there is no data.eval", c.eval.every));
  }
  if (c.model.weights == WeightSource::load && c.model.from.empty()) {
    report("model.weights", "is load, but there is no model.from to load from");
  }
}

void check_schedule(const RunConfig& c, const Report& report) {
  const ScheduleSection& s = c.schedule;
  if (s.warmup_steps > c.run.steps) {
    report("schedule.warmup_steps",
           fmt::format("is {}, more than run.steps {}", s.warmup_steps, c.run.steps));
  } else if (s.kind != ScheduleKind::constant && s.warmup_steps + s.decay_steps > c.run.steps) {
    report("schedule.decay_steps",
           fmt::format("is {}, with schedule.warmup_steps {} that is more than run.steps {}",
                       s.decay_steps, s.warmup_steps, c.run.steps));
  }
  if (s.kind == ScheduleKind::wsd && s.decay_steps == 0) {
    report("schedule.decay_steps",
           "is 0, but schedule.kind: wsd ends with a decay: give its length");
  }
}

}  // namespace

ModelSizes model_sizes(const ModelConfig& model) {
  const ModelSizes sizes{.heads = model.num_attention_heads,
                         .kv_heads = model.num_key_value_heads,
                         .layers = model.num_hidden_layers,
                         .experts = model.num_experts};
  return sizes.heads > 0 && sizes.kv_heads > 0 && sizes.layers > 0 ? sizes : ModelSizes{};
}

bool has_model(const RunConfig& config) { return config.model.config.vocab_size > 0; }

void check_run_config(const RunConfig& config, const Report& report) {
  check_objective(config.objective, report);
  check_sizes(config, report);
  check_schedule(config, report);
}

void check_run_mesh(RunConfig& config, int world, const Report& report) {
  ParallelSection& p = config.parallel;
  const MeshRequest request{.sizes = p.mesh,
                            .world = world > 0 ? world : smallest_world(p.mesh),
                            .virtual_stages = p.virtual_stages,
                            .schedule = p.schedule,
                            .model = model_sizes(config.model.config)};
  const auto findings = check_mesh(request);
  for (const MeshFinding& finding : findings) report(finding.key, finding.sentence);
  if (findings.empty()) p.mesh = fit_mesh(p.mesh, static_cast<int>(request.world));
}

}  // namespace bdlm
