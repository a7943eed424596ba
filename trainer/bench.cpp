// SPDX-License-Identifier: Apache-2.0
#include "trainer/bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

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

/// y = x w^T with the two products of its backward pass, on memory of its own; the same shape is
/// timed once.
class Products {
 public:
  Products(Device& device, DType type) : device_(device), values_(device, true, {}), type_(type) {}

  /// `times` in a step.
  void add(std::int64_t rows, std::int64_t in, std::int64_t out, std::int64_t times) {
    add_grouped({rows}, in, out, times);
  }
  /// A matrix w for each group of rows.
  void add_grouped(const std::vector<std::int64_t>& rows, std::int64_t in, std::int64_t out,
                   std::int64_t times) {
    const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    if (all * in * out * times == 0) return;
    const auto [known, is_new] = known_.try_emplace({rows, in, out}, 0);
    if (is_new) known->second = time(rows, all, in, out);
    seconds += known->second * static_cast<double>(times);
    flops += 6.0 * static_cast<double>(all * in * out * times);
  }

  double seconds = 0, flops = 0;

 private:
  double time(const std::vector<std::int64_t>& rows, std::int64_t all, std::int64_t in,
              std::int64_t out) {
    const auto groups = static_cast<std::int64_t>(rows.size());
    const Buffer x = values_.random(all, in, type_), w = values_.random(groups * out, in, type_);
    const Buffer y = values_.zeros(all, out, type_);
    const Buffer dw = values_.zeros(groups * out, in, accumulate_type(type_));
    double total = 0;
    const auto fastest = [&](const std::function<void()>& product) {
      double best = std::numeric_limits<double>::infinity();
      for (int i = 0; i < 4; ++i) best = std::min(best, seconds_of(device_, product));
      total += best;
    };
    if (groups > 1) {
      fastest([&] { device_.grouped_gemm(x, rows, w, Transpose::yes, y); });
      fastest([&] { device_.grouped_gemm_gradient(y, x, rows, dw); });
      fastest([&] { device_.grouped_gemm(y, rows, w, Transpose::no, x); });
    } else {
      fastest([&] { device_.gemm(x, Transpose::no, w, Transpose::yes, y, Accumulate::no); });
      fastest([&] { device_.gemm(y, Transpose::yes, x, Transpose::no, dw, Accumulate::yes); });
      fastest([&] { device_.gemm(y, Transpose::no, w, Transpose::no, x, Accumulate::no); });
    }
    return total;
  }

  Device& device_;
  KernelTimer values_;
  DType type_;
  std::map<std::tuple<std::vector<std::int64_t>, std::int64_t, std::int64_t>, double> known_;
};

/// `total` rows as evenly over the experts here as they divide.
std::vector<std::int64_t> even_groups(std::int64_t total, std::int64_t experts) {
  std::vector<std::int64_t> rows;
  for (std::int64_t e = 0; e < experts; ++e)
    rows.push_back(total * (e + 1) / experts - total * e / experts);
  return rows;
}

/// A mixture's products on this rank, whose share of the tensor group's rows they work on. Routes
/// are taken as even.
void time_mixture(Products& products, const ModelConfig& m, const ModelShard& shard,
                  std::int64_t out, std::int64_t times) {
  const std::int64_t rows = scattered_share(out, shard.tensor_rank, shard.tensor).count;
  const std::int64_t width = m.moe_intermediate_size;
  products.add(rows, m.hidden_size, m.num_experts, times);
  products.add(rows, m.hidden_size, 2 * m.shared_width(), times);
  products.add(rows, m.shared_width(), m.hidden_size, times);
  const auto groups = even_groups(rows * m.num_experts_per_tok,
                                  share_of(m.num_experts, shard.expert_rank, shard.expert).count);
  products.add_grouped(groups, m.hidden_size, 2 * width, times);
  products.add_grouped(groups, width, m.hidden_size, times);
}

/// Of this rank: its stage's layers, its heads, its part of the MLP and of the vocabulary.
void time_products(Products& products, const StepBatch& batch, const RunConfig& config, int rank) {
  const ModelShard shard = shard_of(config, rank);
  const ModelConfig m = local_config(config.model.config, shard);
  for (const MicroStep& micro : batch.micro) {
    std::map<std::pair<int, bool>, std::int64_t> layers;  // how many of a kind, dense or sparse
    for (const LayerRange& chunk : shard.chunks)
      for (std::int64_t l = chunk.begin; l < chunk.end; ++l)
        ++layers[{micro.plan.layer[static_cast<std::size_t>(l)], m.sparse(l)}];
    for (const auto& [layer, times] : layers) {
      const LayerPlan& plan = micro.plan.distinct[static_cast<std::size_t>(layer.first)];
      const auto in = static_cast<std::int64_t>(plan.in.size());
      const auto out = static_cast<std::int64_t>(plan.out.size());
      products.add(in, m.hidden_size, m.kv_width(), times);
      products.add(out, m.hidden_size, m.query_width(), times);
      products.add(out, m.query_width(), m.hidden_size, times);
      if (layer.second) {
        time_mixture(products, m, shard, out, times);
        continue;
      }
      products.add(out, m.hidden_size, 2 * m.intermediate_size, times);
      products.add(out, m.intermediate_size, m.hidden_size, times);
    }
    if (!shard.last) continue;
    const auto head = static_cast<std::int64_t>(micro.plan.head.size());
    const std::int64_t chunk = std::min(head, config.batch.loss_chunk);
    if (chunk > 0)
      products.add(chunk, m.hidden_size,
                   share_of(m.vocab_size, shard.tensor_rank, shard.tensor).count,
                   (head + chunk - 1) / chunk);
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
  time_products(products, fastest, config, mesh.rank());
  result.product_flops = products.flops;
  result.product_seconds = products.seconds;
  return result;
}

}  // namespace bdlm
