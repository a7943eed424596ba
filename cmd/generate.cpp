// SPDX-License-Identifier: Apache-2.0
// bdlm generate: text from a checkpoint, block by block.
#include <fmt/format.h>

#include <memory>

#include "cmd/commands.h"
#include "data/tokenizer.h"
#include "model/whole_model.h"
#include "trainer/engine.h"
#include "trainer/generate.h"
#include "trainer/run_device.h"

namespace bdlm {
namespace {

struct GenerateArguments {
  std::string checkpoint, prompt;
  std::vector<std::string> overrides;
  GenerateOptions options;
};

int run_generate(GenerateArguments& arguments, MpiSession& session) {
  require(session.size() == 1, "generate runs on one rank: start it without mpirun");
  const CheckpointInfo checkpoint = open_checkpoint(arguments.checkpoint);
  // The topology of training does not matter here.
  std::vector<std::string> overrides{"parallel.schedule=1f1b"};
  for (const char* axis : {"csbp", "tensor", "pipeline", "virtual_stages", "expert", "zero"})
    overrides.push_back(fmt::format("parallel.{}=1", axis));
  overrides.insert(overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
  const RunConfig config =
      parse_run_file(checkpoint.run_file, checkpoint.folder + "/run.yaml", overrides, 1);
  const ModelConfig& model = config.model.config;
  require(model.vocab_size >= ByteTokenizer::vocab_size,
          "{}: the model's vocabulary of {} does not hold the byte tokenizer's {} ids, the only "
          "tokenizer that generate knows",
          checkpoint.folder, model.vocab_size, ByteTokenizer::vocab_size);

  const auto traffic = std::make_shared<Traffic>();
  Mesh mesh({}, traffic);
  const auto device = make_device(config, mesh, traffic);
  KeyValueCache cache(*device, model, config.run.dtype);
  WholeModel whole(*device, model, decoder_options(config), cache, false);
  load_weights(checkpoint, model, whole.decoder().layout(), whole.weights(), *device);

  arguments.options.end_token = ByteTokenizer::end_of_text;
  fmt::print("{}", arguments.prompt);
  std::fflush(stdout);
  const std::vector<std::int32_t> prompt = ByteTokenizer::encode(arguments.prompt);
  generate(whole.decoder(), cache, *device, config.objective, prompt, arguments.options,
           [](std::span<const std::int32_t> block) {
             fmt::print("{}", ByteTokenizer::decode(block));
             std::fflush(stdout);
           });
  fmt::print("\n");
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Choice& choice) {
  auto* command = app.add_subcommand("generate", "Write text with a trained checkpoint");
  auto arguments = std::make_shared<GenerateArguments>();
  command->add_option("--checkpoint", arguments->checkpoint, "checkpoint or run folder")
      ->required();
  command->add_option("--prompt", arguments->prompt, "text to go on from");
  GenerateOptions& o = arguments->options;
  command->add_option("--max-tokens", o.max_tokens, "tokens after the prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command->add_option("--steps", o.steps,
                      "denoising steps a block at most; 0: as many as it has tokens")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--confidence", o.confidence,
                   "tokens at least this probable are taken together in one step")
      ->capture_default_str();
  command->add_option("--temperature", o.temperature, "0: always the most probable token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command->add_option("--seed", o.seed, "of the sampling")->capture_default_str();
  command->add_option("--set", arguments->overrides, "section.key=value over the stored run file's")
      ->allow_extra_args(false);
  command->footer(
      "Example: bdlm generate --checkpoint runs/quickstart --prompt 'In the beginning' "
      "--temperature 0.7");
  command->callback([arguments, &choice] {
    choice.run = [arguments](MpiSession& session) { return run_generate(*arguments, session); };
  });
}

}  // namespace bdlm
