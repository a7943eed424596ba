// SPDX-License-Identifier: Apache-2.0
// bdlm plan: what a run will be, without running it.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cmd/commands.h"
#include "trainer/plan_report.h"

namespace bdlm {
namespace {

struct PlanArguments {
  std::string run_file;
  std::vector<std::string> overrides;
  int ranks = 0;
  std::int64_t step = 1;
  bool mesh = false;
};

int run_plan(const PlanArguments& arguments, MpiSession& session) {
  if (session.rank() != 0) return 0;
  const int ranks = arguments.ranks > 0 ? arguments.ranks : session.size();
  const RunConfig config = read_run_file(arguments.run_file, arguments.overrides, ranks);
  fmt::print("{}", arguments.mesh ? mesh_report(config) : plan_report(config, arguments.step));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Choice& choice) {
  auto* command = app.add_subcommand(
      "plan", "Show what a run will be without running it: topology, who computes and reads\n"
              "which rows, bytes by purpose");
  auto arguments = std::make_shared<PlanArguments>();
  command->add_option("run", arguments->run_file, "run file (YAML)")->required();
  command->add_option("--set", arguments->overrides, "section.key=value over the run file's")
      ->allow_extra_args(false);
  command->add_option("--ranks", arguments->ranks, "ranks of the launch; default: this launch's")
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--step", arguments->step, "whose batch and noise are planned")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--mesh", arguments->mesh,
                    "draw the mesh instead: stages, their layers and ranks, who talks to whom");
  command->footer(
      "Without data.train a step of whole rows, one document each, is planned.\n"
      "Example: bdlm plan configs/csbp.yaml --ranks 8 --set parallel.csbp=8\n"
      "         bdlm plan configs/csbp.yaml --ranks 8 --set parallel.tensor=2 --mesh");
  command->callback([arguments, &choice] {
    choice.run = [arguments](MpiSession& session) { return run_plan(*arguments, session); };
  });
}

}  // namespace bdlm
