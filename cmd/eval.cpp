// SPDX-License-Identifier: Apache-2.0
// bdlm eval: the evaluation bound of a checkpoint.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cmd/commands.h"
#include "parallel/watchdog.h"
#include "trainer/evaluate.h"
#include "trainer/model_placement.h"
#include "trainer/run_device.h"
#include "trainer/sources.h"
#include "trainer/traffic.h"

namespace bdlm {
namespace {

struct EvalArguments {
  std::string run_file, checkpoint;
  std::vector<std::string> overrides;
};

int run_eval(const EvalArguments& arguments, MpiSession& session) {
  const RunConfig config = read_run_file(arguments.run_file, arguments.overrides, session.size());
  const std::string place = arguments.checkpoint.empty() ? config.run.folder : arguments.checkpoint;
  const CheckpointInfo checkpoint = open_checkpoint(place);
  const DataSource source = evaluation_source(config);
  const auto traffic = watched_traffic();
  Mesh mesh(config.parallel.mesh, traffic, key_copies(config));
  const Watchdog watchdog(traffic->activity, config.fault.timeout, mesh.rank());
  const auto device = make_device(config, mesh, traffic);
  Engine engine(config, *device, mesh, Mode::evaluate);
  engine.load(checkpoint);
  const Evaluation result =
      evaluate(engine, config, source, evaluation_rows(config, source), config.eval.draws);
  if (mesh.speaks())
    fmt::print(
        "{}: step {}, {} rows, {} tokens: NELBO {:.6f} nats a token ({:.4f} bits), "
        "perplexity at most {:.4f}\n",
        config.data.eval, checkpoint.progress.step, result.rows, result.tokens, result.nelbo,
        result.bits_per_token(), result.perplexity());
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Choice& choice) {
  auto* command =
      app.add_subcommand("eval", "NELBO a token and perplexity bound of a checkpoint on data.eval");
  auto arguments = std::make_shared<EvalArguments>();
  command->add_option("run", arguments->run_file, "run file (YAML)")->required();
  command->add_option("--checkpoint", arguments->checkpoint,
                      "checkpoint or run folder; default: the run file's own run.folder");
  command->add_option("--set", arguments->overrides, "section.key=value over the run file's")
      ->allow_extra_args(false);
  command->footer("Example: mpirun -n 4 bdlm eval configs/quickstart.yaml --set eval.draws=4");
  command->callback([arguments, &choice] {
    choice.run = [arguments](MpiSession& session) { return run_eval(*arguments, session); };
  });
}

}  // namespace bdlm
