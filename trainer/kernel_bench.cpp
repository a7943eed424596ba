// SPDX-License-Identifier: Apache-2.0
#include "trainer/kernel_bench.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/kernel_timer.h"

namespace bdlm {

double Rates::seconds(const Work& work) const {
  const double moving = bandwidth > 0 ? work.bytes / bandwidth : 0;
  return std::max(moving, flops > 0 ? work.flops / flops : 0);
}

KernelBench bench_kernels(
    Device& device, const Rates& given, bool quick,
    const std::function<void(const KernelTiming&, const KernelBench&)>& done) {
  KernelBench bench{device.name(), given, {0, 0}, {}};
  KernelTimer timer(device, quick, [&](KernelTiming timing) {
    // The device's own rates: of its plain copy, and of the best product so far.
    const bool timed = timing.error.empty() && timing.seconds > 0;
    if (timed && timing.operation == "copy" && timing.dtype == DType::bf16)
      bench.own.bandwidth = std::max(bench.own.bandwidth, timing.work.bytes / timing.seconds);
    if (timed && timing.operation == "gemm")
      bench.own.flops = std::max(bench.own.flops, timing.work.flops / timing.seconds);
    bench.timings.push_back(std::move(timing));
    done(bench.timings.back(), bench);
  });
  time_movement(timer);
  time_gemm(timer);
  time_layers(timer);
  time_mixtures(timer);
  time_optimizer(timer);
  time_attention(timer);
  return bench;
}

std::string kernel_bench_json(const KernelBench& bench) {
  const auto rates = [](const Rates& r) {
    return nlohmann::ordered_json{{"bytes_per_second", r.bandwidth}, {"flops", r.flops}};
  };
  nlohmann::ordered_json json = {{"device", bench.device},
                                 {"given", rates(bench.given)},
                                 {"own", rates(bench.own)},
                                 {"operations", nlohmann::json::array()}};
  for (const KernelTiming& t : bench.timings) {
    nlohmann::ordered_json row = {{"operation", t.operation},
                                  {"shape", t.shape},
                                  {"dtype", name_of(t.dtype)},
                                  {"bytes", t.work.bytes},
                                  {"flops", t.work.flops}};
    if (t.error.empty()) {
      row["seconds"] = t.seconds;
      row["of_given_floor"] = bench.given.seconds(t.work) / t.seconds;
      row["of_own_floor"] = bench.own.seconds(t.work) / t.seconds;
    } else {
      row["error"] = t.error;
    }
    json["operations"].push_back(std::move(row));
  }
  return json.dump(1) + "\n";
}

}  // namespace bdlm
