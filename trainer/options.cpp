// SPDX-License-Identifier: Apache-2.0
// The option table. To add a key: a field in run_config.h, a row here, `bdlm train --help-config
// --markdown > docs/configuration.md`; a rule between two keys goes to run_config_checks.cpp.
#include "trainer/options.h"

#include <algorithm>

#include "model/families.h"
#include "trainer/options_rows.h"
#include "trainer/options_special.h"

namespace bdlm {
namespace {

using namespace rows;

// The field of a row, for const and other configurations alike.
#define FIELD(member) \
  [](auto& config) -> auto& { return config.member; }

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr Range at_least(double low) { return {.low = low}; }
constexpr Range between(double low, double high) { return {.low = low, .high = high}; }
constexpr Range positive{.low = 0, .high = infinity, .open_low = true};
constexpr Range below_one{.low = 0, .high = 1, .open_high = true};

/// A size that every model states; without a model it is 0, which is no value.
template <class Member>
Option size(const std::string& name, Member member, std::string unit, std::string help) {
  return with_fallback(
      integer("model." + name, member, at_least(1), std::move(unit), std::move(help)), "", false);
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.push_back(preset.name);
  return names;
}

std::vector<Option> run_rows() {
  return {
      text("run.name", FIELD(run.name), "of the run; {name} in run.folder"),
      path("run.folder", FIELD(run.folder), "metrics, checkpoints and the resolved run file"),
      integer("run.steps", FIELD(run.steps), at_least(1), "steps", "optimizer steps in all"),
      integer("run.seed", FIELD(run.seed), at_least(0), "",
              "of the noise, the order of the data and random weights"),
      choice<DeviceKind>(
          "run.device", FIELD(run.device),
          {{"auto", DeviceKind::automatic},
           {"cpu", DeviceKind::cpu},
           {"cuda", DeviceKind::cuda},
           {"emu", DeviceKind::emu}},
          "what computes; auto: a GPU if this build and machine have one; emu: the CUDA backend with "
          "its kernels run on the CPU, for tests"),
      choice<DType>("run.dtype", FIELD(run.dtype),
                    {{"float64", DType::f64},
                     {"float32", DType::f32},
                     {"bfloat16", DType::bf16},
                     {"f64", DType::f64},
                     {"f32", DType::f32},
                     {"bf16", DType::bf16}},
                    "of weights and activations; sums, gradients and moments are f32 or wider"),
      choice<Residual>("run.residual", FIELD(run.residual),
                       {{"compute", Residual::compute}, {"float32", Residual::float32}},
                       "of the residual stream and its gradient; compute: as run.dtype; float32: "
                       "no effect beside float32 and float64"),
      integer("run.threads", FIELD(run.threads), between(0, 4096), "threads",
              "of the CPU, a rank; 0: OMP_NUM_THREADS, else cores / ranks of the machine"),
  };
}

std::vector<Option> model_rows() {
  return {
      with_fallback(path("model.from", FIELD(model.from),
                         "Hugging Face folder; its config.json gives the keys below that are not "
                         "given here, and is not read when all of them are"),
                    ""),
      with_fallback(
          choice<WeightSource>("model.weights", FIELD(model.weights),
                               {{"load", WeightSource::load}, {"random", WeightSource::random}},
                               "first weights: from the safetensors of model.from, or drawn"),
          "load with model.from, else random"),
      choice<std::string>("model.model_type", FIELD(model.config.family),
                          same_names(family_names()),
                          "family: names of tensors on disk and what its layers have"),
      size("vocab_size", FIELD(model.config.vocab_size), "tokens", "rows of the embedding"),
      size("hidden_size", FIELD(model.config.hidden_size), "channels",
           "width of the residual stream"),
      size("intermediate_size", FIELD(model.config.intermediate_size), "channels",
           "width of the MLP"),
      size("num_hidden_layers", FIELD(model.config.num_hidden_layers), "layers", "depth"),
      size("num_attention_heads", FIELD(model.config.num_attention_heads), "heads", "query heads"),
      integer("model.num_key_value_heads", FIELD(model.config.num_key_value_heads), at_least(0),
              "heads", "key and value heads; 0: as many as query heads"),
      integer("model.head_dim", FIELD(model.config.head_dim), at_least(0), "channels",
              "of a head; 0: hidden_size / num_attention_heads"),
      number("model.rms_norm_eps", FIELD(model.config.rms_norm_eps), positive, "",
             "added to the mean square under the root"),
      number("model.rope_theta", FIELD(model.config.rope_theta), positive, "",
             "base of the rotary frequencies"),
      number("model.partial_rotary_factor", FIELD(model.config.partial_rotary_factor),
             {.low = 0, .high = 1, .open_low = true}, "", "share of a head's channels that turn"),
      boolean("model.attention_bias", FIELD(model.config.attention_bias),
              "biases of query, key and value"),
      boolean("model.qk_norm", FIELD(model.config.qk_norm), "RMS norm of each query and key head"),
      boolean("model.tie_word_embeddings", FIELD(model.config.tie_word_embeddings),
              "the head is the embedding"),
      integer("model.sliding_window", FIELD(model.config.sliding_window), at_least(0), "tokens",
              "keys that a layer of type sliding_attention sees"),
      layer_types(),
      number("model.initializer_range", FIELD(model.config.initializer_range), at_least(0), "",
             "standard deviation of random weights"),
      integer("model.max_position_embeddings", FIELD(model.config.max_position_embeddings),
              at_least(0), "tokens", "longest document that the model knows; 0: not stated"),
      choice<RopeType>(
          "model.rope_scaling.rope_type", FIELD(model.config.rope_scaling.type),
          {{"default", RopeType::plain}, {"llama3", RopeType::llama3}, {"yarn", RopeType::yarn}},
          "how rotary frequencies are stretched"),
      number("model.rope_scaling.factor", FIELD(model.config.rope_scaling.factor), at_least(1), "",
             "stretch of the context"),
      number("model.rope_scaling.original_max_position_embeddings",
             FIELD(model.config.rope_scaling.original_max_position_embeddings), at_least(0),
             "tokens", "context before the stretch"),
      number("model.rope_scaling.low_freq_factor", FIELD(model.config.rope_scaling.low_freq_factor),
             positive, "", "llama3"),
      number("model.rope_scaling.high_freq_factor",
             FIELD(model.config.rope_scaling.high_freq_factor), positive, "", "llama3"),
      number("model.rope_scaling.beta_fast", FIELD(model.config.rope_scaling.beta_fast), positive,
             "turns", "yarn"),
      number("model.rope_scaling.beta_slow", FIELD(model.config.rope_scaling.beta_slow), positive,
             "turns", "yarn"),
      number("model.rope_scaling.mscale", FIELD(model.config.rope_scaling.mscale), at_least(0), "",
             "yarn: attention's temperature; 0: by factor"),
      number("model.rope_scaling.mscale_all_dim", FIELD(model.config.rope_scaling.mscale_all_dim),
             at_least(0), "", "yarn: divides what mscale gives; 0: nothing"),
      number("model.rope_scaling.llama_4_scaling_beta",
             FIELD(model.config.rope_scaling.llama_4_scaling_beta), at_least(0), "",
             "above 0: queries grow with the logarithm of their position"),
  };
}

std::vector<Option> objective_rows() {
  return {
      with_fallback(
          choice<std::string>("objective.preset", FIELD(preset), same_names(preset_names()),
                              "published objective whose values are the defaults here"),
          ""),
      integer("objective.block_size", FIELD(objective.block_size), at_least(1), "tokens",
              "of a block: between blocks autoregressive, inside in parallel"),
      choice<CleanAttention>(
          "objective.clean_attention", FIELD(objective.clean_attention),
          {{"block_causal", CleanAttention::block_causal}, {"causal", CleanAttention::causal}},
          "what the clean copy sees: its whole block, or nothing ahead"),
      mask_token_id(),
      choice<Corruption>("objective.corruption", FIELD(objective.corruption),
                         {{"mask", Corruption::mask}, {"uniform", Corruption::uniform}},
                         "a chosen token becomes mask_token_id, or any token of the vocabulary"),
      choice<NoiseLevel>(
          "objective.level", FIELD(objective.level),
          {{"stratified", NoiseLevel::stratified}, {"independent", NoiseLevel::independent}},
          "the noise levels of a row: spread evenly over the range, or drawn one by one"),
      choice<Granularity>("objective.granularity", FIELD(objective.granularity),
                          {{"block", Granularity::block}, {"sequence", Granularity::sequence}},
                          "one noise level a block, or one a document"),
      noise_range(),
      choice<NoiseSchedule>("objective.schedule", FIELD(objective.schedule),
                            {{"linear", NoiseSchedule::linear},
                             {"cosine", NoiseSchedule::cosine},
                             {"square", NoiseSchedule::square},
                             {"square_root", NoiseSchedule::square_root},
                             {"logarithmic", NoiseSchedule::logarithmic}},
                            "chance p(t) that a token is corrupted at level t"),
      choice<Views>("objective.views", FIELD(objective.views),
                    {{"1", Views::one}, {"complementary", Views::complementary}},
                    "corrupted copies of a row; complementary: two that hide each other's rest"),
      choice<LossWeight>("objective.weight", FIELD(objective.weight),
                         {{"nelbo", LossWeight::nelbo}, {"none", LossWeight::none}},
                         "of a token's cross-entropy: p'(t)/p(t), or 1"),
      choice<Scored>("objective.scored", FIELD(objective.scored),
                     {{"corrupted", Scored::corrupted}, {"eligible", Scored::eligible}},
                     "which tokens are predicted: the corrupted, or all that may be"),
      integer("objective.target_shift", FIELD(objective.target_shift), between(0, 1), "tokens",
              "0: a position predicts its own token; 1: the next one, as autoregressive models"),
      with_fallback(boolean("objective.exclude_mask_token", FIELD(objective.exclude_mask_token),
                            "the mask id is no possible answer"),
                    "true with target_shift: 0 and a mask id, else false"),
      choice<Normalize>(
          "objective.normalize", FIELD(objective.normalize),
          {{"eligible", Normalize::eligible},
           {"masked", Normalize::masked},
           {"sequence", Normalize::sequence}},
          "the loss is a mean over: tokens that may be corrupted, that are, documents"),
      number("objective.diffusion_loss_weight", FIELD(objective.diffusion_loss_weight), at_least(0),
             "", "factor of the diffusion loss"),
      number("objective.ar_loss_weight", FIELD(objective.ar_loss_weight), at_least(0), "",
             "factor of next-token cross-entropy on the clean copy; 0: none"),
      choice<ArNormalize>(
          "objective.ar_normalize", FIELD(objective.ar_normalize),
          {{"own", ArNormalize::own}, {"shared", ArNormalize::shared}},
          "that term is a mean over its own pairs, or divided as the diffusion loss"),
      number("objective.router_aux_loss_coef", FIELD(objective.router_aux_loss_coef), at_least(0),
             "", "factor of the balance loss of mixture-of-experts layers"),
  };
}

std::vector<Option> data_rows() {
  return {
      train_files(),
      with_fallback(path("data.eval", FIELD(data.eval), "token file that is not trained on"), ""),
      integer("data.row_tokens", FIELD(data.row_tokens), at_least(1), "tokens",
              "longest packed row (T); longer documents are split at a block"),
      integer("data.window", FIELD(data.window), at_least(1), "documents",
              "looked at to fill a row (first fit)"),
      integer("data.prefetch", FIELD(data.prefetch), between(0, 1024), "micro-batches",
              "made ahead of their use"),
      integer("batch.rows", FIELD(batch.rows), at_least(1), "packed rows",
              "a step, all replicas together"),
      integer("batch.micro_rows", FIELD(batch.micro_rows), at_least(1), "packed rows",
              "a forward pass; gradients of the others accumulate"),
      integer("batch.loss_chunk", FIELD(batch.loss_chunk), at_least(1), "rows",
              "of logits in memory at once"),
  };
}

std::vector<Option> optimizer_rows() {
  return {
      choice<std::string>("optimizer.name", FIELD(optimizer.name), {{"adamw", "adamw"}},
                          "AdamW with decoupled weight decay"),
      number("optimizer.lr", FIELD(optimizer.lr), at_least(0), "", "highest learning rate"),
      number("optimizer.beta1", FIELD(optimizer.beta1), below_one, "",
             "decay of the mean of gradients"),
      number("optimizer.beta2", FIELD(optimizer.beta2), below_one, "",
             "decay of the mean of their squares"),
      number("optimizer.eps", FIELD(optimizer.eps), at_least(0), "", "added to the root"),
      number("optimizer.weight_decay", FIELD(optimizer.weight_decay), at_least(0), "",
             "times lr a step, of matrices only"),
      number("optimizer.clip_grad_norm", FIELD(optimizer.clip_grad_norm), at_least(0), "",
             "longest gradient; 0: no clipping"),
      choice<ScheduleKind>("schedule.kind", FIELD(schedule.kind),
                           {{"constant", ScheduleKind::constant},
                            {"linear", ScheduleKind::linear},
                            {"cosine", ScheduleKind::cosine},
                            {"wsd", ScheduleKind::wsd}},
                           "the learning rate after the warm-up; wsd: stable, then linear decay"),
      integer("schedule.warmup_steps", FIELD(schedule.warmup_steps), at_least(0), "steps",
              "in which the learning rate rises from 0"),
      integer("schedule.decay_steps", FIELD(schedule.decay_steps), at_least(0), "steps",
              "length of the decay; wsd: the last ones; else after the warm-up, 0: to the end"),
      number("schedule.min_lr_ratio", FIELD(schedule.min_lr_ratio), between(0, 1), "of lr",
             "where the decay ends"),
  };
}

std::vector<Option> parallel_rows() {
  return {
      integer("parallel.csbp", FIELD(parallel.mesh.csbp), at_least(1), "ranks",
              "that share a packed row; what is left of the launch is data parallel"),
      integer("parallel.tensor", FIELD(parallel.mesh.tensor), at_least(1), "ranks",
              "that share a layer: its heads, MLP width, vocabulary, and the rows in between"),
      integer("parallel.pipeline", FIELD(parallel.mesh.pipeline), at_least(1), "ranks",
              "that share the depth, a stage each"),
      choice<PipelineSchedule>("parallel.schedule", FIELD(parallel.schedule),
                               {{"1f1b", PipelineSchedule::one_forward_one_backward},
                                {"interleaved", PipelineSchedule::interleaved}},
                               "of the pipeline: one forward, one backward; or the same with "
                               "virtual_stages chunks of layers a rank"),
      integer("parallel.virtual_stages", FIELD(parallel.virtual_stages), at_least(1),
              "chunks a rank", "of the interleaved pipeline: shorter bubbles, more messages"),
      integer("parallel.expert", FIELD(parallel.mesh.expert), at_least(1), "ranks",
              "that share the experts; they divide tensor x csbp x data, whose ranks they are"),
      integer("parallel.zero", FIELD(parallel.zero), between(1, 3), "",
              "sharded over replicas: 1 optimizer state, 2 also gradients, 3 also parameters"),
      choice<Sharding>("parallel.sharding", FIELD(parallel.plan.sharding),
                       {{"csbp", Sharding::csbp}, {"bp", Sharding::bp}, {"cp", Sharding::cp}},
                       "of a row: clean rows exchanged, clean rows repeated, or all exchanged"),
      choice<DealKind>("parallel.deal", FIELD(parallel.plan.deal),
                       {{"balanced", DealKind::balanced},
                        {"head_tail", DealKind::head_tail},
                        {"contiguous", DealKind::contiguous},
                        {"round_robin", DealKind::round_robin}},
                       "of blocks to ranks: by cost, or by position"),
      choice<ExchangeKind>("parallel.exchange", FIELD(parallel.plan.exchange),
                           {{"exact", ExchangeKind::exact},
                            {"allgather", ExchangeKind::allgather},
                            {"ring", ExchangeKind::ring}},
                           "of keys and values: what is read, all to all, or round a ring"),
      choice<KeepRemote>(
          "parallel.keep_remote_kv", FIELD(parallel.keep_remote_kv),
          {{"auto", KeepRemote::automatic}, {"true", KeepRemote::yes}, {"false", KeepRemote::no}},
          "keep received keys and values for the backward pass, or ask again"),
      elide(),
      choice<Transport>("parallel.transport", FIELD(parallel.transport),
                        {{"auto", Transport::automatic},
                         {"nccl", Transport::nccl},
                         {"host", Transport::host}},
                        "between GPUs: NCCL, or MPI through the host's memory (ranks that share a "
                        "GPU); auto: nccl where each rank has a GPU"),
      number("parallel.bucket_mib", FIELD(parallel.bucket_mib), positive, "MiB",
             "of gradient reduction and parameter gathering at once"),
      recompute_mode(),
  };
}

std::vector<Option> service_rows() {
  return {
      integer("checkpoint.every", FIELD(checkpoint.every), at_least(0), "steps",
              "between checkpoints; 0: at the end and on a signal only"),
      integer("checkpoint.keep", FIELD(checkpoint.keep), at_least(0), "checkpoints",
              "newest that are not deleted; 0: all"),
      resume(),
      integer("log.every", FIELD(log.every), at_least(1), "steps", "between printed lines"),
      boolean("log.tensorboard", FIELD(log.tensorboard), "also write TensorBoard event files"),
      boolean("log.progress", FIELD(log.progress), "a progress bar, on a terminal only"),
      integer("eval.every", FIELD(eval.every), at_least(0), "steps",
              "between evaluations on data.eval; 0: at the end only"),
      integer("eval.rows", FIELD(eval.rows), at_least(0), "packed rows",
              "of data.eval that are used; 0: all"),
      integer("eval.draws", FIELD(eval.draws), at_least(1), "", "of the noise, a row"),
      integer("fault.max_skips", FIELD(fault.max_skips), at_least(1), "steps",
              "skipped in a row, their loss or gradient not finite, before the run ends"),
      number("fault.timeout", FIELD(fault.timeout), positive, "seconds",
             "that a rank may not answer before all end"),
  };
}

#undef FIELD

std::vector<Option> all_rows() {
  std::vector<Option> all;
  for (auto* part : {run_rows, model_rows, mixture_rows, objective_rows, data_rows, optimizer_rows,
                     parallel_rows, service_rows}) {
    for (Option& option : part()) all.push_back(std::move(option));
  }
  return all;
}

}  // namespace

const std::vector<Option>& options() {
  static const std::vector<Option> table = all_rows();
  return table;
}

const Option* find_option(const std::string& key) {
  const auto found = std::ranges::find(options(), key, &Option::key);
  return found == options().end() ? nullptr : &*found;
}

const std::vector<SectionHelp>& sections() {
  static const std::vector<SectionHelp> table = {
      {"run", "The run as a whole."},
      {"model", "The decoder: a Hugging Face folder, or its fields with Hugging Face's names."},
      {"objective", "What is corrupted and what is scored (docs/objectives.md)."},
      {"data", "Token files and how documents are packed into rows (docs/formats.md)."},
      {"batch", "How much is trained on at once."},
      {"optimizer", "How parameters follow the gradient."},
      {"schedule", "The learning rate over the steps."},
      {"parallel", "How a row and the optimizer are spread over ranks (docs/csbp.md)."},
      {"recompute", "Memory for time. May be written as one word: `recompute: selective`."},
      {"checkpoint", "What survives the run (docs/checkpoints.md)."},
      {"log", "What is printed and recorded."},
      {"eval", "Measuring on tokens that are not trained on."},
      {"fault", "When to give up."},
  };
  return table;
}

}  // namespace bdlm
