// SPDX-License-Identifier: Apache-2.0
// bdlm bench: the speed of a run file's step on this machine, or of a device's operations one by
// one.
#include "trainer/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>

#include "cmd/commands.h"
#include "kernels/backend.h"
#include "trainer/kernel_bench.h"

namespace bdlm {
namespace {

struct BenchArguments {
  std::string run_file;
  std::vector<std::string> overrides;
  std::int64_t steps = 5;
  bool kernels = false, quick = false;
  std::string device = "cuda", json;
  std::optional<double> bandwidth, flops;  // TB/s, TFLOP/s
};

/// Model FLOPs over what the ranks' devices could do.
void print_utilisation(const BenchResult& r, const BenchArguments& arguments, int ranks) {
  const double rate = r.step_rate() / ranks;
  const PeakRate peak = peak_of(r.device);
  if (peak.stated > 0)
    fmt::print("MFU                  {:.1f} % of {:.0f} TFLOP/s, the dense bfloat16 peak of {}\n",
               100 * rate / peak.stated, peak.stated / 1e12, r.device);
  const double given = arguments.flops ? *arguments.flops * 1e12 : peak.measured;
  if (given > 0)
    fmt::print("                     {:.1f} % of {:.4g} TFLOP/s, {}\n", 100 * rate / given,
               given / 1e12,
               arguments.flops ? "as --flops says" : "measured of a large product on such a GPU");
}

int run_step(const BenchArguments& arguments, MpiSession& session) {
  const RunConfig config = read_run_file(arguments.run_file, arguments.overrides, session.size());
  const BenchResult r = bench_step(config, arguments.steps);
  if (session.rank() != 0) return 0;
  fmt::print("device               {}\n", r.device);
  fmt::print("step                 {:.4f} s for {} tokens, {:.0f} tokens/s\n", r.step_seconds,
             r.tokens, static_cast<double>(r.tokens) / r.step_seconds);
  fmt::print("useful work          {:.4f} TFLOP a step, {:.1f} GFLOP/s\n", r.useful_flops / 1e12,
             r.step_rate() / 1e9);
  print_utilisation(r, arguments, session.size());
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

void print_timing(const KernelTiming& t, const KernelBench& bench) {
  if (!t.error.empty()) {
    fmt::print("{:<20} {:<8}  FAILED: {} ({})\n", t.operation, name_of(t.dtype), t.error, t.shape);
  } else {
    // What its floor is made of is what its rate is told in.
    const bool computes =
        bench.given.seconds({0, t.work.flops}) > bench.given.seconds({t.work.bytes, 0});
    const double rate = (computes ? t.work.flops : t.work.bytes) / t.seconds / 1e12;
    const auto percent = [&](const Rates& rates) {
      return 100 * rates.seconds(t.work) / t.seconds;
    };
    fmt::print("{:<20} {:<8} {:>10.1f} {:>8.2f} {:>9.3f} {:<7} {:>6.1f} {:>6.1f}  {}\n",
               t.operation, name_of(t.dtype), t.seconds * 1e6,
               (computes ? t.work.flops : t.work.bytes) / (computes ? 1e12 : 1e9), rate,
               computes ? "TFLOP/s" : "TB/s", percent(bench.given), percent(bench.own), t.shape);
  }
  std::fflush(stdout);  // what is there stays when the time runs out
}

int run_kernels(const BenchArguments& arguments, MpiSession& session) {
  require(session.size() == 1, "bench --kernels runs on one rank: start it without mpirun");
  std::optional<Backend> backend;  // outlives the device
  if (arguments.device != "cpu") backend.emplace(arguments.device);
  if (backend) backend->devices();  // says why when there is none
  const auto device = backend ? backend->device(0) : make_cpu_device();
  Rates floor;
  if (arguments.bandwidth) floor.bandwidth = *arguments.bandwidth * 1e12;
  if (arguments.flops) floor.flops = *arguments.flops * 1e12;
  fmt::print(
      "{}\nfloor: {:.3g} TB/s and {:.4g} TFLOP/s{}; own: this run's copy and best gemm so far\n\n"
      "{:<20} {:<8} {:>10} {:>8} {:>17} {:>6} {:>6}\n{:<20} {:<8} {:>10} {:>8} {:>17} {:>6} {:>6}  "
      "{}\n",
      device->name(), floor.bandwidth / 1e12, floor.flops / 1e12,
      arguments.bandwidth && arguments.flops ? "" : " (by default an H200's, as measured)", "", "",
      "", "GB or", "", "% of", "% of", "operation", "dtype", "us", "TFLOP", "achieved", "floor",
      "own", "shape");
  const KernelBench bench = bench_kernels(*device, floor, arguments.quick, print_timing);
  fmt::print("\ncopy {:.3f} TB/s ({:.1f} % of the floor), best gemm {:.1f} TFLOP/s ({:.1f} %)\n",
             bench.own.bandwidth / 1e12, 100 * bench.own.bandwidth / floor.bandwidth,
             bench.own.flops / 1e12, 100 * bench.own.flops / floor.flops);
  if (!arguments.json.empty()) {
    std::ofstream file(arguments.json);
    file << kernel_bench_json(bench);
    require(file.flush().good(), "{} cannot be written", arguments.json);
  }
  const auto failed =
      std::ranges::count_if(bench.timings, [](auto& t) { return !t.error.empty(); });
  if (failed > 0) fmt::print("{} of {} timings FAILED\n", failed, bench.timings.size());
  return failed == 0 ? 0 : 1;
}

}  // namespace

void add_bench(CLI::App& app, Choice& choice) {
  auto* command = app.add_subcommand(
      "bench",
      "Time a run file's step, or every operation of a device, beside what they could reach");
  auto arguments = std::make_shared<BenchArguments>();
  auto* run = command->add_option("run", arguments->run_file, "run file (YAML)");
  command->add_option("--set", arguments->overrides, "section.key=value over the run file's")
      ->allow_extra_args(false);
  command->add_option("--steps", arguments->steps, "timed steps; the fastest counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--flops", arguments->flops,
                   "TFLOP/s that a device could do: for MFU and floors")
      ->check(CLI::PositiveNumber);
  auto* kernels = command
                      ->add_flag("--kernels", arguments->kernels,
                                 "time the device's operations instead of a run file's step")
                      ->excludes(run);
  command->add_option("--device", arguments->device, "of --kernels: cuda, cpu, or emu (for tests)")
      ->check(CLI::IsMember({"cuda", "cpu", "emu"}))
      ->needs(kernels)
      ->capture_default_str();
  command
      ->add_option("--bandwidth", arguments->bandwidth, "TB/s of the device's memory, for floors")
      ->check(CLI::PositiveNumber)
      ->needs(kernels);
  command->add_option("--json", arguments->json, "of --kernels: also write all figures there")
      ->needs(kernels);
  command->add_flag("--quick", arguments->quick, "of --kernels: tiny shapes, to see that all run")
      ->needs(kernels);
  command->footer(
      "Nothing else is written.\n"
      "Example: bdlm bench configs/speed_32m.yaml --steps 10\n"
      "         bdlm bench --kernels --device cuda --json kernels.json");
  command->callback([arguments, &choice] {
    if (arguments->run_file.empty() && !arguments->kernels)
      throw CLI::RequiredError("a run file or --kernels");
    choice.run = [arguments](MpiSession& session) {
      return arguments->kernels ? run_kernels(*arguments, session) : run_step(*arguments, session);
    };
  });
}

}  // namespace bdlm
