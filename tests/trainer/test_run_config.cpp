// SPDX-License-Identifier: Apache-2.0
// Run files: what is read, what is refused and where the message points.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "kernels/error.h"
#include "trainer/engine.h"
#include "trainer/run_config.h"

using namespace bdlm;
using Catch::Matchers::Contains;
using Catch::Matchers::Equals;

namespace {

const std::string model = R"(
model:
  model_type: llama
  vocab_size: 258
  hidden_size: 32
  intermediate_size: 48
  num_hidden_layers: 3
  num_attention_heads: 4
  num_key_value_heads: 2
)";

RunConfig parse(const std::string& text, const std::vector<std::string>& overrides = {},
                int world = 0) {
  return parse_run_file(text, "/work/run.yaml", overrides, world);
}

/// Everything that is wrong with the text.
std::string wrong(const std::string& text, const std::vector<std::string>& overrides = {},
                  int world = 0) {
  try {
    parse(text, overrides, world);
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

}  // namespace

TEST_CASE("an empty run file is all defaults") {
  const RunConfig config = parse("");
  CHECK(config.run.steps == 1000);
  CHECK(config.run.folder == "/work/runs/run");
  CHECK(config.optimizer.lr == 3e-4);
  CHECK(config.parallel.plan.elide.last_layer);
  CHECK(config.recompute == std::vector<Recompute>{Recompute::none});
}

TEST_CASE("numbers in their spellings") {
  for (const char* text : {"1e-4", "1E-4", ".0001", "0.0001", "+1e-4", "1.0e-04"}) {
    CAPTURE(text);
    CHECK(parse(fmt::format("optimizer: {{lr: {}}}", text)).optimizer.lr == 1e-4);
  }
  for (const char* text : {"1_000", "1000", "1e3", "1000.0", "+1000", "01000"}) {
    CAPTURE(text);
    CHECK(parse(fmt::format("run:\n  steps: {}", text)).run.steps == 1000);
  }
  CHECK(parse("data: {row_tokens: 64Ki}").data.row_tokens == 65536);
  CHECK(parse("data: {row_tokens: 1Mi}").data.row_tokens == 1048576);
  CHECK(parse("run: {seed: 9007199254740993}").run.seed == 9007199254740993);  // 2^53 + 1
  for (const char* text : {"1.5",
                           "1e-1",
                           "'12'",
                           "\"12\"",
                           "0x10",
                           "1_",
                           "_1",
                           "1__0",
                           "64ki",
                           "Ki",
                           "",
                           "nan",
                           ".inf",
                           "true",
                           "[1]",
                           "1 2",
                           "1e99",
                           "9Ti_",
                           "99999999999999999999",
                           "9000000Ti"}) {
    CAPTURE(text);
    CHECK_THAT(wrong(fmt::format("run:\n  steps: {}", text)), Contains("run.yaml:2: run.steps: "));
  }
}

TEST_CASE("truth values and strings are not guessed") {
  for (const char* text : {"true", "yes", "on", "True", "ON"}) {
    CHECK(parse(fmt::format("log: {{progress: {}}}", text)).log.progress);
  }
  for (const char* text : {"false", "no", "off"}) {
    CHECK_FALSE(parse(fmt::format("log: {{progress: {}}}", text)).log.progress);
  }
  for (const char* text : {"1", "'yes'", "y", "[]"}) {
    CAPTURE(text);
    CHECK_THAT(wrong(fmt::format("log: {{progress: {}}}", text)), Contains("true or false"));
  }
  CHECK(parse("run: {name: 'yes'}").run.name == "yes");
  CHECK(parse("run: {name: 012}").run.name == "012");
  CHECK_THAT(wrong("run: {name: yes}"), Contains("put yes in quotes"));
  CHECK_THAT(wrong("run: {name: [a]}"), Contains("must be a string, not a list"));
}

TEST_CASE("all findings come at once, each with its place") {
  const std::string text = R"(run:
  stepz: 5
optimiser:
  lr: 1
optimizer:
  lr: "1e-4"
  beta1: 1
objective:
  clip_grad_norm: 2
  weight: nelboo
  views: complementary
  corruption: uniform
batch:
  lr: 3
  rows: 2
  rows: 3
data: 7
)";
  CHECK_THAT(
      wrong(text),
      Equals("/work/run.yaml:2: run.stepz: unknown key; did you mean run.steps?\n"
             "/work/run.yaml:3: optimiser: unknown key; did you mean optimizer?\n"
             "/work/run.yaml:6: optimizer.lr: must be a number, but '1e-4' is quoted, which makes "
             "it a string\n"
             "/work/run.yaml:7: optimizer.beta1: is 1, must be 0 to below 1\n"
             "/work/run.yaml:9: objective.clip_grad_norm: unknown key; did you mean "
             "optimizer.clip_grad_norm?\n"
             "/work/run.yaml:10: objective.weight: is 'nelboo', must be nelbo | none; did you mean "
             "nelbo?\n"
             "/work/run.yaml:11: objective.views: complementary hides each token in one of two "
             "views, which objective.corruption: uniform cannot do: use views: 1 or corruption: "
             "mask\n"
             "/work/run.yaml:14: batch.lr: unknown key; did you mean optimizer.lr?\n"
             "/work/run.yaml:16: batch.rows: stands here again, its first is at "
             "/work/run.yaml:15\n"
             "/work/run.yaml:17: data: is a section with the keys train, eval, row_tokens, window, "
             "prefetch, not '7'"));
}

TEST_CASE("what is not a run file says so") {
  CHECK_THAT(wrong("- a\n- b\n"), Contains("run.yaml:1: must be sections"));
  CHECK_THAT(wrong("run:\n  steps: [1\n"), Contains("not valid YAML"));
  CHECK_THAT(wrong("run:\n\tsteps: 1\n"), Contains("run.yaml:2: not valid YAML"));
  CHECK_THAT(wrong("? [a]\n: 1\n"), Contains("has a list for a key"));
  CHECK_THROWS_WITH(read_run_file("/nowhere/run.yaml", {}, 0), Contains("/nowhere/run.yaml"));
  CHECK_THROWS_WITH(read_run_file("/tmp", {}, 0), Contains("/tmp"));
}

TEST_CASE("an override has the last word and names itself") {
  const RunConfig config = parse("run: {steps: 5}", {"run.steps=7", "run.steps=8", "recompute=full",
                                                     "objective.range=[0.1, 0.9]"});
  CHECK(config.run.steps == 8);
  CHECK(config.recompute.front() == Recompute::full);
  CHECK(config.objective.range_high == 0.9);
  CHECK(wrong("", {"run.steps=x"}) == "--set run.steps: must be a whole number, not 'x'");
  CHECK(wrong("", {"run.stebs=1"}) == "--set run.stebs: unknown key; did you mean run.steps?");
  CHECK_THAT(wrong("", {"run.steps"}), Contains("section.key=value"));
  CHECK_THAT(wrong("", {"run.steps="}), Contains("has no value"));
  CHECK_THAT(wrong("", {"run.steps=[1"}), Contains("--set run.steps: not valid YAML"));
}

TEST_CASE("strings take the environment, paths start at the file's folder") {
  ::setenv("BDLM_TEST_ROOT", "/scratch/me", 1);
  ::unsetenv("BDLM_TEST_UNSET");
  const RunConfig config = parse(
      "run: {name: 'a${BDLM_TEST_ROOT}b', folder: '${BDLM_TEST_ROOT}/{name}'}\n"
      "data: {train: x/../y.h5, eval: /abs/z.h5}\n");
  CHECK(config.run.name == "a/scratch/meb");
  CHECK(config.data.train.at(0).path == "/work/y.h5");
  CHECK(config.data.eval == "/abs/z.h5");
  CHECK_THAT(wrong("run:\n\n  name: ${BDLM_TEST_UNSET}"),
             Contains("run.yaml:3: run.name: environment variable BDLM_TEST_UNSET is not set"));
  CHECK_THAT(wrong("run: {name: '${BDLM'}"), Contains("without its }"));
  const std::string here = std::filesystem::current_path().string();
  CHECK(parse("", {"data.train=y.h5"}).data.train.at(0).path == here + "/y.h5");
}

TEST_CASE("lists: blends, elided work, recomputation by layer") {
  const RunConfig config = parse(model + R"(
data:
  train: [{path: a.h5, weight: 2}, b.h5]
parallel: {elide: [last_layer, second_clean], keep_remote_kv: false}
recompute: [none, selective, full]
)");
  REQUIRE(config.data.train.size() == 2);
  CHECK(config.data.train[0].weight == 2);
  CHECK(config.data.train[1].path == "/work/b.h5");
  CHECK(config.parallel.plan.elide.last_layer);
  CHECK_FALSE(config.parallel.plan.elide.unscored_logits);
  CHECK(config.parallel.keep_remote_kv == KeepRemote::no);
  CHECK(config.recompute ==
        std::vector<Recompute>{Recompute::none, Recompute::selective, Recompute::full});
  CHECK(parse(model + "recompute: selective").recompute ==
        std::vector<Recompute>(3, Recompute::selective));
  CHECK_THAT(wrong(model + "recompute: {mode: [full, none]}"),
             Contains("recompute.mode: has 2 modes for model.num_hidden_layers 3"));
  CHECK_THAT(wrong("parallel: {elide: [lost_layer]}"), Contains("did you mean last_layer?"));
  CHECK_THAT(wrong("data: {train: [{weight: 1}]}"), Contains("without a path"));
  CHECK_THAT(wrong("data: {train: [{path: a, weight: 0}]}"), Contains("above 0"));
  CHECK_THAT(wrong("objective: {range: [0.5]}"), Contains("must be [low, high], not 1 values"));
  CHECK_THAT(wrong("objective: {range: [0.9, 0.1]}"), Contains("0 <= low < high <= 1"));
}

TEST_CASE("presets are defaults only") {
  CHECK(parse("objective: {preset: fast_dllm_v2}").objective.views == Views::complementary);
  const RunConfig config = parse("objective: {block_size: 64, preset: fast_dllm_v2, views: 1}");
  CHECK(config.objective.views == Views::one);
  CHECK(config.objective.block_size == 64);
  CHECK(config.objective.target_shift == 1);
  CHECK_FALSE(config.objective.exclude_mask_token);
  const RunConfig gemma = parse(model + "objective: {preset: diffusion_gemma}");
  CHECK(gemma.objective.mask_token_id == -1);
  CHECK_FALSE(gemma.objective.exclude_mask_token);
  CHECK_THAT(wrong("objective: {preset: bd3ml}"), Contains("did you mean bd3lm?"));
}

TEST_CASE("defaults that depend on other keys") {
  CHECK(parse(model).objective.mask_token_id == 257);
  CHECK(parse(model + "objective: {mask_token_id: 3}").objective.mask_token_id == 3);
  CHECK(parse(model).objective.exclude_mask_token);
  CHECK(parse(model).model.config.head_dim == 8);
  CHECK(parse(model).recompute.size() == 3);
  CHECK_FALSE(parse("objective: {target_shift: 1}").objective.exclude_mask_token);
  CHECK(
      parse("objective: {target_shift: 1, exclude_mask_token: true}").objective.exclude_mask_token);
  CHECK(parse("model: {model_type: qwen3}",
              {"model.vocab_size=9", "model.hidden_size=8", "model.intermediate_size=8",
               "model.head_dim=8", "model.num_hidden_layers=1", "model.num_attention_heads=1"})
            .model.config.qk_norm);
}

TEST_CASE("combinations that cannot work name both keys") {
  const auto both = [](const std::string& text, const std::string& one, const std::string& other) {
    CAPTURE(text);
    CHECK_THAT(wrong(text), Contains(one) && Contains(other));
  };
  both("objective: {views: complementary, scored: eligible}", "objective.views",
       "objective.scored");
  both("objective: {range: [0, 1]}", "objective.range", "objective.weight");
  both("objective: {ar_loss_weight: 1}", "objective.ar_loss_weight", "objective.clean_attention");
  both("objective: {diffusion_loss_weight: 0}", "objective.diffusion_loss_weight",
       "objective.ar_loss_weight");
  both("objective: {corruption: uniform, exclude_mask_token: true}", "objective.exclude_mask_token",
       "objective.corruption");
  both(model + "objective: {mask_token_id: 258}", "objective.mask_token_id", "model.vocab_size");
  both("batch: {rows: 2, micro_rows: 3}", "batch.micro_rows", "batch.rows");
  both("data: {row_tokens: 16}", "objective.block_size", "data.row_tokens");
  both("eval: {every: 5}", "eval.every", "data.eval");
  both(model + "  weights: load", "model.weights", "model.from");
  both(model + "objective: {router_aux_loss_coef: 0.1}", "objective.router_aux_loss_coef",
       "model.model_type llama has no experts");
  both(model + "  freeze_router: true", "model.freeze_router", "has no router");
  both(model + "  num_experts: 4", "model.num_experts", "model.model_type");
  both("run: {steps: 5}\nschedule: {warmup_steps: 6}", "schedule.warmup_steps", "run.steps");
  both("run: {steps: 5}\nschedule: {kind: wsd, warmup_steps: 3, decay_steps: 3}",
       "schedule.decay_steps", "run.steps");
  both("schedule: {kind: wsd}", "schedule.decay_steps", "schedule.kind");
  both("parallel: {virtual_stages: 2, pipeline: 2}", "parallel.virtual_stages",
       "parallel.schedule");
  both("parallel: {virtual_stages: 2, schedule: interleaved}", "parallel.virtual_stages",
       "parallel.pipeline");
  both(model + "parallel: {tensor: 3}", "parallel.tensor", "model.num_attention_heads");
  both(model + "parallel: {pipeline: 4}", "parallel.pipeline", "model.num_hidden_layers");
  both(model + "parallel: {expert: 2}", "parallel.expert", "no experts");
  both(model + "  sliding_window: 4\n  layer_types: [sliding_attention]", "model.layer_types",
       "num_hidden_layers");
  CHECK_THAT(wrong("\n\nobjective:\n  weight: nelbo\n  range: [0, 1]"), Contains("run.yaml:5: "));
}

TEST_CASE("the launch must divide") {
  CHECK(parse("parallel: {csbp: 2}", {}, 4).parallel.mesh.data == 2);
  CHECK_THAT(wrong("parallel:\n  csbp: 2", {}, 3), Contains("run.yaml:2: parallel.csbp: 3 ranks"));
  const std::string all = "parallel: {csbp: 2, tensor: 2, pipeline: 2, zero: 3}";
  CHECK(parse(all, {}, 24).parallel.mesh.data == 3);
  CHECK_THAT(wrong(all, {}, 12), Contains("12 ranks do not divide into tensor 2 x csbp 2 x"));
  const RunConfig deep = parse(
      model + "parallel: {pipeline: 3, virtual_stages: 1, schedule: interleaved}", {}, 3);
  CHECK(deep.parallel.schedule == PipelineSchedule::interleaved);
  CHECK(print_run_file(deep).find("schedule: interleaved") != std::string::npos);
  // Without a launch nothing is asked of it.
  CHECK(parse("parallel: {csbp: 2, expert: 4}").parallel.mesh.data == 2);
  CHECK_THAT(wrong("parallel: {csbp: 2, expert: 4}", {}, 6),
             Contains("parallel.expert: is 4, which does not divide the 6 ranks of a pipeline"));
}

TEST_CASE("a printed run file reads back as the same") {
  const std::string text = model + R"(
  tie_word_embeddings: true
  layer_types: [full_attention, sliding_attention, full_attention]
  sliding_window: 7
  rope_scaling: {rope_type: llama3, factor: 8, original_max_position_embeddings: 64}
run: {name: "it's: #1", seed: 9007199254740993, dtype: bf16, residual: float32}
objective: {preset: llada2, schedule: cosine}
data: {train: [{path: "a b.h5", weight: 0.1}, c.h5], eval: d.h5}
optimizer: {lr: 1e-4, eps: 1e-08}
parallel: {elide: [last_layer], keep_remote_kv: true, bucket_mib: 0.5}
recompute: [full, none, none]
checkpoint: {resume: other/run}
)";
  const RunConfig config = parse(text);
  const std::string printed = print_run_file(config);
  const RunConfig again = parse_run_file(printed, "/elsewhere/resolved.yaml", {}, 0);
  CHECK(print_run_file(again) == printed);
  CHECK(again.run.name == "it's: #1");
  CHECK(again.run.seed == 9007199254740993);
  CHECK(again.run.residual == Residual::float32);
  CHECK(again.data.train[0].path == "/work/a b.h5");
  CHECK(again.data.train[0].weight == 0.1);
  CHECK(again.objective.range_low == 0.3);
  CHECK(again.checkpoint.resume_path == "/work/other/run");
  CHECK(again.model.config.rope_scaling.factor == 8);
  CHECK(again.model.config.layer_types == config.model.config.layer_types);
  CHECK(again.recompute == config.recompute);

  const std::string empty = print_run_file(parse(""));
  CHECK(print_run_file(parse_run_file(empty, "/x.yaml", {}, 0)) == empty);
}

TEST_CASE("a mixture's fields are read printed and read back") {
  const std::string text = R"(
model: {model_type: llada2_moe, vocab_size: 258, hidden_size: 32, intermediate_size: 48,
  num_hidden_layers: 3, num_attention_heads: 4, num_key_value_heads: 2, num_experts: 12,
  num_experts_per_tok: 3, moe_intermediate_size: 16, norm_topk_prob: false, freeze_router: true,
  num_shared_experts: 2, first_k_dense_replace: 1, moe_router_enable_expert_bias: false,
  n_group: 4, topk_group: 3, routed_scaling_factor: 1.5}
objective: {router_aux_loss_coef: 0.25}
)";
  const std::string printed = print_run_file(parse(text));
  for (const RunConfig& config : {parse(text), parse(printed)}) {
    const ModelConfig& m = config.model.config;
    CHECK(m.freeze_router);
    CHECK(m.num_shared_experts == 2);
    CHECK_FALSE(m.sparse(0));
    CHECK_FALSE(m.router_bias);
    CHECK(m.partial_rotary_factor == 0.5);
    const Router router = m.router();
    CHECK(router.experts == 12);
    CHECK(router.chosen == 3);
    CHECK(router.sigmoid);
    CHECK(router.groups == 4);
    CHECK(router.best_groups == 3);
    CHECK_FALSE(router.normalize);
    CHECK(router.scaling == 1.5);
    CHECK(config.objective.router_aux_loss_coef == 0.25);
  }
  CHECK_THAT(wrong(text, {"model.n_group=5"}),
             Contains("model.n_group") && Contains("these do: 1, 2, 3, 4, 6"));
}

TEST_CASE("run.residual widens the residual stream of bfloat16 only") {
  const auto residual = [](const std::string& run) {
    return decoder_options(parse("run: {" + run + "}")).residual;
  };
  CHECK(residual("dtype: bf16") == DType::bf16);
  CHECK(residual("dtype: bf16, residual: float32") == DType::f32);
  CHECK(residual("dtype: f32, residual: float32") == DType::f32);
  CHECK(residual("dtype: f64, residual: float32") == DType::f64);
}

TEST_CASE("a Hugging Face folder gives what the run file does not") {
  const auto folder = std::filesystem::temp_directory_path() / "bdlm_test_run_config";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "qwen2", "vocab_size": 66,
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rope_theta": 12345.0, "mask_token_id": 65})";
  const std::string text = fmt::format("model: {{from: {}, rms_norm_eps: 1e-3}}", folder.string());
  const RunConfig config = parse(text);
  CHECK(config.model.weights == WeightSource::load);
  CHECK(config.model.config.rope_theta == 12345);
  CHECK(config.model.config.rms_norm_eps == 1e-3);
  CHECK(config.model.config.attention_bias);
  CHECK(config.objective.mask_token_id == 65);
  // The resolved file stands alone: a checkpoint can be read where the folder is gone.
  const std::string printed = print_run_file(config);
  std::filesystem::remove_all(folder);
  CHECK(print_run_file(parse(printed)) == printed);
  // So do those that were written before there were experts.
  std::string older;
  std::istringstream lines(printed);
  for (std::string line; std::getline(lines, line);) {
    const bool of_experts = line.find("expert") != std::string::npos ||
                            line.find("router:") != std::string::npos ||
                            line.find("topk") != std::string::npos ||
                            line.find("n_group") != std::string::npos ||
                            line.find("dense_replace") != std::string::npos ||
                            line.find("routed_scaling") != std::string::npos ||
                            line.find("moe_") != std::string::npos;
    if (!of_experts) older += line + "\n";
  }
  CHECK(older.size() < printed.size());
  CHECK(parse(older).model.config.rope_theta == 12345);
  CHECK_THAT(wrong(text), Contains("run.yaml:1: model.from: ") && Contains("config.json"));
}

TEST_CASE("the golden cases' run files, with the model beside them") {
  int cases = 0;
  for (const auto& entry : std::filesystem::directory_iterator(BDLM_TEST_DATA "/golden")) {
    const std::string folder = entry.path().string(), file = folder + "/run.yaml";
    if (!std::filesystem::exists(file)) continue;
    CAPTURE(file);
    CHECK(read_run_file(file, {}, 0).optimizer.name == "adamw");
    const RunConfig config = read_run_file(file, {"model.from=" + folder}, 1);
    CHECK(config.objective.mask_token_id == config.model.config.vocab_size - 1);
    CHECK((config.model.config.vocab_size == 66 || folder.ends_with("_edges")));
    ++cases;
  }
  CHECK(cases > 0);
}
