// SPDX-License-Identifier: Apache-2.0
// bdlm parity: one golden case, to the last digits.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>

#include "cmd/commands.h"
#include "kernels/error.h"
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
  bool all_lines = false, skip_unfit = false;
};

enum class Verdict { passed, failed, unfit };

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

/// What failed is told with the combination under which it did.
ParityReport check_combination(const std::string& folder, const std::vector<std::string>& words,
                               const RunConfig& config, const ParityArguments& arguments) {
  ParityTolerance tolerance = default_tolerance(config.run.dtype);
  tolerance.values = arguments.tolerance.value_or(tolerance.values);
  tolerance.trained = arguments.train_tolerance.value_or(tolerance.trained);
  try {
    return check_parity(folder, config, tolerance);
  } catch (const Error& error) {
    fail("{} {}: {}", folder, fmt::join(words, " "), error.what());
  }
}

Verdict check_folder(const std::string& name, const ParityArguments& arguments,
                     MpiSession& session) {
  const std::string folder = std::filesystem::absolute(name).lexically_normal();
  Combinations combinations = combinations_of(folder, arguments, session.size());
  std::vector<RunConfig> configs;
  for (std::vector<std::string>& words : combinations) {
    words.insert(words.end(), arguments.overrides.begin(), arguments.overrides.end());
    try {
      configs.push_back(golden_config(folder, words, session.size()));
    } catch (const UnfitMesh& error) {
      if (!arguments.skip_unfit) throw;
      if (session.rank() == 0) fmt::print("{}: left out: {}\n", name, error.what());
      return Verdict::unfit;
    }
  }
  std::size_t passed = 0;
  ParityLine worst;
  for (std::size_t i = 0; i < configs.size(); ++i) {
    const ParityReport report = check_combination(folder, combinations[i], configs[i], arguments);
    passed += report.passed() ? 1 : 0;
    const ParityLine& line = worst_of(report);
    if (worst.what.empty() || !(line.error <= worst.error)) worst = line;
    if (session.rank() == 0) print_report(name, combinations[i], report, arguments);
  }
  if (!arguments.sweep.empty() && session.rank() == 0)
    fmt::print("{} on {} ranks: {} of {} combinations passed, largest error {:.2e} ({})\n", name,
               session.size(), passed, combinations.size(), worst.error, worst.what);
  return passed == combinations.size() ? Verdict::passed : Verdict::failed;
}

int run_parity(const ParityArguments& arguments, MpiSession& session) {
  std::array<int, 3> folders{};
  for (const std::string& folder : arguments.folders)
    ++folders[static_cast<std::size_t>(check_folder(folder, arguments, session))];
  const auto [passed, failed, unfit] = folders;
  require(passed + failed > 0, "nothing was compared, all {} models are unfit: choose other sizes",
          unfit);
  return failed == 0 ? 0 : 1;
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
  command->add_flag("--skip-unfit", arguments->skip_unfit,
                    "leave out, with a line, folders whose model cannot be cut as --set says; an\n"
                    "error if that is all of them");
  command->add_flag("--all", arguments->all_lines, "print every comparison, not only failures");
  command->footer(
      "Exit status 0: all within tolerance, 1: not.\n"
      "Example: mpirun -n 4 bdlm parity tests/golden/qwen3_packed_prompts --set parallel.csbp=2");
  command->callback([arguments, &choice] {
    choice.run = [arguments](MpiSession& session) { return run_parity(*arguments, session); };
  });
}

}  // namespace bdlm
