// SPDX-License-Identifier: Apache-2.0
#include "trainer/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>
#include <memory>

#include "trainer/kernel_timer.h"
#include "trainer/model_placement.h"
#include "trainer/run_device.h"
#include "trainer/sources.h"
#include "trainer/step.h"

namespace bdlm {
namespace {

/// The device has finished before and after.
double seconds_of(Device& device, const std::function<void()>& work) {
  device.synchronize();
  const auto start = std::chrono::steady_clock::now();
  work();
  device.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// y = x w^T with the two products of its backward pass, on memory of its own.
class Products {
 public:
  Products(Device& device, DType type) : device_(device), values_(device, true, {}), type_(type) {}

  /// `times` in a step.
  void add(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t times) {
    if (rows == 0) return;
    const DType sums = accumulate_type(type_);
    const Buffer x = values_.random(rows, in, type_), w = values_.random(out, in, type_);
    const Buffer y = values_.zeros(rows, out, type_), dw = values_.zeros(out, in, sums);
    const auto fastest = [&](const std::function<void()>& product) {
      double best = std::numeric_limits<double>::infinity();
      for (int i = 0; i < 4; ++i) best = std::min(best, seconds_of(device_, product));
      seconds += best * static_cast<double>(times);
      flops += 2.0 * static_cast<double>(rows * in * out * times);
    };
    fastest([&] { device_.gemm(x, Transpose::no, w, Transpose::yes, y, Accumulate::no); });
    fastest([&] { device_.gemm(y, Transpose::yes, x, Transpose::no, dw, Accumulate::yes); });
    fastest([&] { device_.gemm(y, Transpose::no, w, Transpose::no, x, Accumulate::no); });
  }

  double seconds = 0, flops = 0;

 private:
  Device& device_;
  KernelTimer values_;
  DType type_;
};

void time_products(Products& products, const StepBatch& batch, const RunConfig& config) {
  const ModelConfig& m = config.model.config;
  for (const MicroStep& micro : batch.micro) {
    for (std::size_t kind = 0; kind < micro.plan.distinct.size(); ++kind) {
      const LayerPlan& plan = micro.plan.distinct[kind];
      const auto times = std::count(micro.plan.layer.begin(), micro.plan.layer.end(),
                                    static_cast<int>(kind));
      const auto in = static_cast<std::int64_t>(plan.in.size());
      const auto out = static_cast<std::int64_t>(plan.out.size());
      products.add(in, m.hidden_size, m.kv_width(), times);
      products.add(out, m.hidden_size, m.query_width(), times);
      products.add(out, m.query_width(), m.hidden_size, times);
      products.add(out, m.hidden_size, 2 * m.intermediate_size, times);
      products.add(out, m.intermediate_size, m.hidden_size, times);
    }
    const auto head = static_cast<std::int64_t>(micro.plan.head.size());
    const std::int64_t chunk = std::min(head, config.batch.loss_chunk);
    if (chunk > 0) products.add(chunk, m.hidden_size, m.vocab_size, (head + chunk - 1) / chunk);
  }
}

}  // namespace

PeakRate peak_of(const std::string& device) {
  struct Known {
    const char* name;
    PeakRate rate;
  };
  // Measured: 8192 x 8192 x 8192 on random data, 2026-10-28.
  constexpr std::array<Known, 3> table{
      {{"H200", {989e12, 790e12}}, {"H100", {989e12, 0}}, {"A100", {312e12, 0}}}};
  for (const Known& known : table)
    if (device.find(known.name) != std::string::npos) return known.rate;
  return {};
}

BenchResult bench_step(const RunConfig& config, std::int64_t steps) {
  const auto traffic = std::make_shared<Traffic>();
  Mesh mesh(config.parallel.mesh, traffic, key_copies(config));
  const DataSource source = training_source(config);
  const auto device = make_device(config, mesh, traffic);
  Engine engine(config, *device, mesh, Mode::train);
  engine.initialize();

  BenchResult result;
  result.device = device->name();
  result.step_seconds = std::numeric_limits<double>::infinity();
  StepBatch fastest;
  AttentionWork fastest_work;
  for (std::int64_t step = 1; step <= steps + 1; ++step) {
    // Other rows every step, as in training: their shapes are new to the libraries.
    StepBatch batch = batch_of_step(source, config, step, (step - 1) * config.batch.rows,
                                    mesh.position().data, engine.seat());
    const AttentionWork before = engine.model().work();
    mesh.world().barrier();
    double seconds = seconds_of(*device, [&] {
      train_step(engine, batch, config, config.optimizer.lr, step);
      device->synchronize();
      mesh.world().barrier();
    });
    if (step == 1) continue;  // warms up
    mesh.world().all_reduce(std::span(&seconds, 1), Reduce::max);
    if (seconds >= result.step_seconds) continue;
    result.step_seconds = seconds;
    const AttentionWork after = engine.model().work();
    fastest_work.forward_pairs = after.forward_pairs - before.forward_pairs;
    fastest = std::move(batch);
  }
  // The ranks of a tensor group and the stages share a plan: one of them tells.
  const MeshPosition at = mesh.position();
  std::array<double, 4> sums{
      fastest.flops, 0, 0,
      at.tensor == 0 ? static_cast<double>(fastest_work.forward_pairs) : 0};
  for (const MicroStep& micro : fastest.micro) {
    if (at.tensor != 0 || at.pipeline != 0) break;
    const WorkCounts work = count_work(micro.plan);
    sums[1] += static_cast<double>(work.pairs);
    sums[2] += static_cast<double>(work.layer_rows);
  }
  mesh.world().all_reduce(sums, Reduce::sum);
  result.useful_flops = sums[0];
  result.pairs = sums[1];
  result.rows = sums[2];
  result.attention_forward_pairs = static_cast<std::int64_t>(sums[3]);
  std::array<std::int64_t, 1> tokens{fastest.tokens};
  mesh.data().all_reduce(tokens, Reduce::sum);
  result.tokens = tokens[0];
  std::array<double, 1> memory{static_cast<double>(device->memory().peak)};
  mesh.world().all_reduce(memory, Reduce::max);
  result.memory_peak = memory[0];
  for (std::size_t kind = 0; kind < memory_kinds; ++kind)
    result.memory_by_kind[kind] = static_cast<double>(device->memory().peak_by_kind[kind]);
  mesh.world().all_reduce(result.memory_by_kind, Reduce::max);

  Products products(*device, config.run.dtype);
  time_products(products, fastest, config);
  result.product_flops = products.flops;
  result.product_seconds = products.seconds;
  return result;
}

}  // namespace bdlm
