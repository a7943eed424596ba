// SPDX-License-Identifier: Apache-2.0
// bdlm bench: the speed of a run file's step on this machine.
#include <fmt/format.h>

#include <memory>

#include "cmd/commands.h"
#include "trainer/bench.h"

namespace bdlm {
namespace {

struct BenchArguments {
  std::string run_file;
  std::vector<std::string> overrides;
  std::int64_t steps = 5;
};

int run_bench(const BenchArguments& arguments, MpiSession& session) {
  const RunConfig config = read_run_file(arguments.run_file, arguments.overrides, session.size());
  const BenchResult r = bench_step(config, arguments.steps);
  if (session.rank() != 0) return 0;
  fmt::print("step                 {:.4f} s for {} tokens, {:.0f} tokens/s\n", r.step_seconds,
             r.tokens, static_cast<double>(r.tokens) / r.step_seconds);
  fmt::print("useful work          {:.4f} TFLOP a step, {:.1f} GFLOP/s\n", r.useful_flops / 1e12,
             r.step_rate() / 1e9);
  fmt::print("its matrix products  {:.1f} GFLOP/s alone, on one rank\n", r.product_rate() / 1e9);
  if (session.size() == 1)
    fmt::print("step / products      {:.3f} of their rate\n", r.step_rate() / r.product_rate());
  fmt::print("visible pairs        {:.4e}, attended forward {:.4e}\n", r.pairs,
             static_cast<double>(r.attention_forward_pairs));
  fmt::print("rows of layers       {:.4e}\n", r.rows);
  fmt::print("memory               {:.1f} MiB at most on a rank\n", r.memory_peak / 1048576);
  for (std::size_t kind = 0; kind < memory_kinds; ++kind)
    fmt::print("  {:<18} {:.1f} MiB\n", name_of(static_cast<Memory>(kind)),
               r.memory_by_kind[kind] / 1048576);
  return 0;
}

}  // namespace

void add_bench(CLI::App& app, Choice& choice) {
  auto* command = app.add_subcommand(
      "bench", "Time a run file's step beside the matrix products that it is made of");
  auto arguments = std::make_shared<BenchArguments>();
  command->add_option("run", arguments->run_file, "run file (YAML)")->required();
  command->add_option("--set", arguments->overrides, "section.key=value over the run file's")
      ->allow_extra_args(false);
  command->add_option("--steps", arguments->steps, "timed steps; the fastest counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->footer("Nothing is written.\nExample: bdlm bench configs/speed_32m.yaml --steps 10");
  command->callback([arguments, &choice] {
    choice.run = [arguments](MpiSession& session) { return run_bench(*arguments, session); };
  });
}

}  // namespace bdlm
