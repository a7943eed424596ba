// SPDX-License-Identifier: Apache-2.0
// bdlm parity: one golden case, to the last digits.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "cmd/commands.h"
#include "model/families.h"
#include "trainer/parity.h"
#include "trainer/parity_sweep.h"
#include "trainer/run_config_checks.h"

namespace bdlm {
namespace {

struct ParityArguments {
  std::vector<std::string> folders, overrides;
  std::optional<double> tolerance, train_tolerance;
  std::string sweep;  // empty: none
  bool all_lines = false;
};

Combinations combinations_of(const std::string& folder, const ParityArguments& arguments,
                             int world) {
  if (arguments.sweep == "modes") return mode_sweep(world);
  if (arguments.sweep == "zero") return zero_sweep();
  if (arguments.sweep == "topologies")
    return topology_sweep(world, model_sizes(read_hf_config(folder)));
  return Combinations(1);
}

/// The comparison that came nearest to its tolerance, or went furthest beyond it.
const ParityLine& worst_of(const ParityReport& report) {
  const auto share = [](const ParityLine& line) {
    return line.error / std::max(line.tolerance, 1e-300);
  };
  const ParityLine* worst = &report.lines.front();
  for (const ParityLine& line : report.lines)
    if (!(share(line) <= share(*worst))) worst = &line;
  return *worst;
}

void print_report(const std::string& folder, const std::vector<std::string>& words,
                  const ParityReport& report, const ParityArguments& arguments) {
  for (const ParityLine& line : report.lines)
    if (arguments.all_lines || !line.passed())
      fmt::print("{:<72} {:10.2e}  {}\n", line.what, line.error, line.passed() ? "ok" : "FAILED");
  if (!arguments.sweep.empty() && report.passed() && !arguments.all_lines) return;
  const ParityLine& worst = worst_of(report);
  fmt::print("{} {}: {} comparisons, worst {:.2e} ({}): {}\n", folder, fmt::join(words, " "),
             report.lines.size(), worst.error, worst.what,
             report.passed() ? "passed" : "FAILED");
}

bool check_folder(const std::string& name, const ParityArguments& arguments, MpiSession& session) {
  const std::string folder = std::filesystem::absolute(name).lexically_normal();
  const Combinations combinations = combinations_of(folder, arguments, session.size());
  std::size_t passed = 0;
  ParityLine worst;
  for (const std::vector<std::string>& words : combinations) {
    std::vector<std::string> overrides = words;
    overrides.insert(overrides.end(), arguments.overrides.begin(), arguments.overrides.end());
    const RunConfig config = golden_config(folder, overrides, session.size());
    ParityTolerance tolerance = default_tolerance(config.run.dtype);
    tolerance.values = arguments.tolerance.value_or(tolerance.values);
    tolerance.trained = arguments.train_tolerance.value_or(tolerance.trained);
    const ParityReport report = check_parity(folder, config, tolerance);
    passed += report.passed() ? 1 : 0;
    const ParityLine& line = worst_of(report);
    if (worst.what.empty() || !(line.error <= worst.error)) worst = line;
    if (session.rank() == 0) print_report(name, overrides, report, arguments);
  }
  if (!arguments.sweep.empty() && session.rank() == 0)
    fmt::print("{} on {} ranks: {} of {} combinations passed, largest error {:.2e} ({})\n", name,
               session.size(), passed, combinations.size(), worst.error, worst.what);
  return passed == combinations.size();
}

int run_parity(const ParityArguments& arguments, MpiSession& session) {
  bool passed = true;
  for (const std::string& folder : arguments.folders)
    passed = check_folder(folder, arguments, session) && passed;
  return passed ? 0 : 1;
}

}  // namespace

void add_parity(CLI::App& app, Choice& choice) {
  auto* command = app.add_subcommand(
      "parity", "Run a golden case and compare losses, gradients, residual streams and trained\n"
                "parameters with what the float64 reference computed");
  auto arguments = std::make_shared<ParityArguments>();
  command
      ->add_option("folder", arguments->folders,
                   "golden folders: config.json, model.safetensors, run.yaml, golden.h5")
      ->required();
  command
      ->add_option("--sweep", arguments->sweep,
                   "modes: every split into csbp x data, sharding, exchange, deal, recomputation\n"
                   "and elide; topologies: every split into tensor, csbp, pipeline, virtual stages,\n"
                   "expert and data that can carry the model; zero: zero, sharding, recomputation")
      ->check(CLI::IsMember({"modes", "topologies", "zero"}));
  command->add_option("--set", arguments->overrides, "section.key=value of the run file")
      ->allow_extra_args(false);
  command->add_option("--tolerance", arguments->tolerance,
                      "largest relative error of losses, gradients and residual streams; default\n"
                      "1e-10 in float64, 1e-4 in float32, 5e-2 in bfloat16");
  command->add_option("--train-tolerance", arguments->train_tolerance,
                      "the same for parameters after the optimizer steps; default 1e-8, 1e-2, 5e-1");
  command->add_flag("--all", arguments->all_lines, "print every comparison, not only failures");
  command->footer(
      "Exit status 0: all within tolerance, 1: not.\n"
      "Example: mpirun -n 4 bdlm parity tests/golden/qwen3_packed_prompts --set parallel.csbp=2");
  command->callback([arguments, &choice] {
    choice.run = [arguments](MpiSession& session) { return run_parity(*arguments, session); };
  });
}

}  // namespace bdlm
