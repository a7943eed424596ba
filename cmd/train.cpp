// SPDX-License-Identifier: Apache-2.0
// bdlm train: the run that a YAML file describes, on as many ranks as the launcher starts.
#include <fmt/format.h>

#include <memory>

#include "cmd/commands.h"
#include "trainer/train.h"

namespace bdlm {
namespace {

struct TrainArguments {
  std::string run_file, resume;
  std::vector<std::string> overrides;
  bool print_config = false, help_config = false, markdown = false;
};

int run_train(const TrainArguments& arguments, MpiSession& session) {
  if (arguments.help_config) {
    if (session.rank() == 0)
      fmt::print("{}", arguments.markdown ? options_markdown() : describe_options());
    return 0;
  }
  require(!arguments.run_file.empty(),
          "train needs a run file: bdlm train RUN.yaml (bdlm train --help shows more)");
  std::vector<std::string> overrides = arguments.overrides;
  if (!arguments.resume.empty()) overrides.push_back("checkpoint.resume=" + arguments.resume);
  // Printing is asked for where a run is prepared, without the launch that it is meant for.
  const int world = arguments.print_config && session.size() == 1 ? 0 : session.size();
  const RunConfig config = read_run_file(arguments.run_file, overrides, world);
  if (arguments.print_config) {
    if (session.rank() == 0) fmt::print("{}", print_run_file(config));
    return 0;
  }
  return train(config);
}

}  // namespace

void add_train(CLI::App& app, Choice& choice) {
  auto* command = app.add_subcommand("train", "Train the model that a run file describes");
  auto arguments = std::make_shared<TrainArguments>();
  command->add_option("run", arguments->run_file, "run file (YAML)");
  command->add_option("--set", arguments->overrides, "section.key=value over the run file's")
      ->allow_extra_args(false);
  command->add_option("--resume", arguments->resume,
                      "auto: the newest complete checkpoint of the run folder, if there is one; "
                      "never: start anew; PATH: that checkpoint");
  command->add_flag("--print-config", arguments->print_config,
                    "print the complete resolved run file and exit");
  command->add_flag("--help-config", arguments->help_config,
                    "print every key of a run file with default and meaning, and exit");
  command->add_flag("--markdown", arguments->markdown, "with --help-config: as docs/configuration.md");
  command->footer(
      "SIGTERM and SIGUSR1 finish the step, save and exit with 0; a second one ends at once.\n"
      "Example: mpirun -n 4 bdlm train configs/quickstart.yaml --set run.steps=50");
  command->callback([arguments, &choice] {
    choice.run = [arguments](MpiSession& session) { return run_train(*arguments, session); };
  });
}

}  // namespace bdlm
