// SPDX-License-Identifier: Apache-2.0
// The formulas of docs/parallelism.md, summed over a step's plan.
#include <algorithm>
#include <utility>

#include "model/embedding.h"
#include "parallel/zero.h"
#include "trainer/engine.h"
#include "trainer/model_placement.h"
#include "trainer/traffic.h"

namespace bdlm {
namespace {

/// The plan's distinct layer `kind` as a plan of one layer.
StepPlan one_layer(const StepPlan& plan, std::size_t kind) {
  StepPlan one;
  one.distinct.push_back(plan.distinct[kind]);
  one.layer.push_back(0);
  return one;
}

void add(Traffic& traffic, Purpose purpose, std::int64_t times, std::int64_t sent,
         std::int64_t received) {
  traffic.at(purpose).sent += times * sent;
  traffic.at(purpose).received += times * received;
}

std::int64_t count_of(const auto& list) { return static_cast<std::int64_t>(list.size()); }

class StepTraffic {
 public:
  StepTraffic(const RunConfig& config, int rank)
      : config_(config),
        model_(config.model.config),
        rank_(rank),
        at_(position_of(config.parallel.mesh, rank)),
        shard_(shard_of(config, rank)),
        shapes_(layer_shapes(local_config(model_, shard_))),
        wire_(static_cast<std::int64_t>(size_of(config.run.dtype))),
        sum_(static_cast<std::int64_t>(size_of(accumulate_type(config.run.dtype)))),
        stream_(static_cast<std::int64_t>(size_of(decoder_options(config).residual))) {}

  void micro_batch(const MicroStep& micro) {
    exchange_.clear();
    for (std::size_t kind = 0; kind < micro.plan.distinct.size(); ++kind)
      exchange_.push_back(exchange_bytes(one_layer(micro.plan, kind), shapes_,
                                         config_.parallel.plan, at_.csbp, wire_, sum_));
    for (std::size_t chunk = 0; chunk < shard_.chunks.size(); ++chunk) {
      const LayerRange layers = shard_.chunks[chunk];
      for (std::int64_t l = layers.begin; l < layers.end; ++l) layer(micro.plan, l);
      links(micro.plan, chunk);
    }
    if (alone()) return;
    if (shard_.first) embedding(micro.input.ids);
    if (shard_.last) head(micro.plan);
  }

  void experts(const RoutedRows& routed) {
    const std::int64_t row = model_.hidden_size * wire_;
    const auto passes = [&](const ExpertRows& rows, std::int64_t there, std::int64_t back) {
      add(traffic_, Purpose::expert_rows, 1, rows.sent * there + rows.received * back,
          rows.received * there + rows.sent * back);
    };
    passes(routed.forward, row + sum_, row);  // a row and its weight; what the expert made of it
    passes(routed.again, row + sum_, 0);
    passes(routed.forward, row, row + sum_);  // gradients of the result; of the row and the weight
  }

  void parameters(std::int64_t micro_batches, bool update) {
    const ParameterLayout layout = layout_of(model_, shard_);
    const ZeroOptions options = zero_options(config_, Mode::train);
    for (std::size_t h = 0; h < holder_sets; ++h) {
      if (layout.sets[h].count == 0) continue;
      const auto set = static_cast<Holders>(h);
      const GroupPlace place =
          place_among(set, config_.parallel.mesh, rank_, key_copies(config_));
      const int level = zero_level_of(set, options.level, place.size);
      const ShardLayout shards = shards_of(layout, set, place.size, options);
      const ZeroBytes bytes = zero_bytes(shards, place.rank, sum_, wire_);
      add(traffic_, Purpose::gradient_reduce, level == 1 ? 1 : micro_batches, bytes.reduce_sent,
          bytes.reduce_received);
      if (level < 3) {
        if (update)
          add(traffic_, Purpose::parameter_gather, 1, bytes.gather_sent, bytes.gather_received);
        continue;
      }
      for (std::size_t unit = 0; unit < layout.units.size(); ++unit) {
        const ZeroBytes part = unit_bytes(shards, layout.units[unit][h], place.rank);
        add(traffic_, Purpose::parameter_gather, micro_batches * uses_of(unit, layout),
            part.gather_sent, part.gather_received);
      }
    }
  }

  const Traffic& traffic() const { return traffic_; }

 private:
  bool alone() const { return shard_.tensor == 1; }
  FlatRange share(std::int64_t rows) const {
    return scattered_share(rows, at_.tensor, shard_.tensor);
  }
  std::int64_t hidden(std::int64_t element) const { return model_.hidden_size * element; }

  /// `times` gathers of n rows, and sums of n rows to their places.
  void gather(std::int64_t n, std::int64_t times) {
    const std::int64_t own = share(n).count;
    add(traffic_, Purpose::tensor_rows, times, (shard_.tensor - 1) * own * hidden(wire_),
        (n - own) * hidden(wire_));
  }
  void reduce(std::int64_t n, std::int64_t times) {
    const std::int64_t own = share(n).count;
    add(traffic_, Purpose::tensor_rows, times, (n - own) * hidden(wire_),
        (shard_.tensor - 1) * own * hidden(wire_));
  }
  /// `forward` picks of rows out of n, and one way back of their gradients.
  void pick(std::span<const std::int32_t> rows, std::int64_t n, std::int64_t forward) {
    const RowMove move = plan_move(rows, n, at_.tensor, shard_.tensor);
    std::int64_t sent = 0, received = 0;
    for (const RowMove::Run& run : move.sends) sent += run.count * hidden(stream_);
    for (const RowMove::Run& run : move.receives) received += run.count * hidden(stream_);
    add(traffic_, Purpose::tensor_rows, forward, sent, received);
    add(traffic_, Purpose::tensor_rows, 1, received, sent);
  }

  void layer(const StepPlan& plan, std::int64_t l) {
    const auto kind = static_cast<std::size_t>(plan.layer[static_cast<std::size_t>(l)]);
    const Recompute recompute = config_.recompute[static_cast<std::size_t>(l)];
    const ExchangeBytes& b = exchange_[kind];
    const ExchangePasses passes = exchange_passes(config_, recompute);
    add(traffic_, Purpose::exchange_forward, passes.forward, b.forward_sent, b.forward_received);
    add(traffic_, Purpose::exchange_recompute, passes.again, b.forward_sent, b.forward_received);
    add(traffic_, Purpose::exchange_gradient, passes.gradient, b.gradient_sent,
        b.gradient_received);
    if (alone()) return;

    const LayerPlan& p = plan.distinct[kind];
    const std::int64_t in = count_of(p.in), out = count_of(p.out);
    const bool sparse = model_.sparse(l);
    const int times = recompute == Recompute::none ? 1 : 2;  // forward, and again
    gather(in, times);              // of the attention's norm
    reduce(out, times);             // of its output
    if (!sparse) gather(out, times);  // of the MLP's norm
    if (!sparse) reduce(out, 1);      // of its output
    if (!sparse) gather(out, 1);      // of that one's gradient
    if (!sparse) reduce(out, 1);      // of the MLP's norm's gradient
    gather(out, 1);                   // of the attention's output's gradient
    reduce(in, 1);                    // of its norm's gradient
    if (!p.out_is_in) pick(p.out, in, times);
  }

  void links(const StepPlan& plan, std::size_t chunk) {
    if (config_.parallel.mesh.pipeline == 1) return;
    const LayerRange layers = shard_.chunks[chunk];
    const bool first = shard_.first && chunk == 0;
    const bool last = shard_.last && chunk + 1 == shard_.chunks.size();
    const std::int64_t in = first ? 0 : share(count_of(plan.at(layers.begin).in)).count;
    const std::int64_t out = last ? 0 : share(count_of(plan.at(layers.end - 1).out)).count;
    add(traffic_, Purpose::pipeline_rows, 1, (in + out) * hidden(stream_),
        (in + out) * hidden(stream_));
  }

  void embedding(std::span<const std::int32_t> ids) {
    const EmbeddingPlan plan =
        plan_embedding(ids, model_.vocab_size, at_.tensor, shard_.tensor);
    std::int64_t sent = 0, received = 0;
    for (int r = 0; r < shard_.tensor; ++r) {
      if (r == at_.tensor) continue;
      sent += plan.sends[static_cast<std::size_t>(r)];
      received += plan.receives[static_cast<std::size_t>(r)];
    }
    add(traffic_, Purpose::tensor_rows, 1, sent * hidden(wire_), received * hidden(wire_));
    add(traffic_, Purpose::tensor_rows, 1, received * hidden(stream_), sent * hidden(stream_));
  }

  void head(const StepPlan& plan) {
    const std::int64_t out = count_of(plan.at(plan.layers() - 1).out), n = count_of(plan.head);
    if (n != out) pick(plan.head, out, 1);
    gather(n, 1);
    reduce(n, 1);
    const std::int64_t statistics = (shard_.tensor - 1) * 3 * n * sum_;
    add(traffic_, Purpose::tensor_rows, 1, statistics, statistics);
  }

  /// Gathers of a unit's parameters in a micro-batch.
  std::int64_t uses_of(std::size_t unit, const ParameterLayout& layout) const {
    const bool layer = unit > 0 && unit + 1 < layout.units.size();
    if (layer) return 2;  // forward, backward
    const bool tied = model_.tie_word_embeddings && !shard_.pipelined;
    return unit == 0 && tied ? 2 : 1;  // the head reads it too
  }

  ZeroBytes unit_bytes(const ShardLayout& shards, FlatRange part, int rank) const {
    ZeroBytes bytes;
    const auto [first, last] = shards.buckets_of(part);
    for (std::size_t b = first; b < last; ++b) {
      const std::vector<std::int64_t> counts = shards.counts(b);
      const std::int64_t own = counts[static_cast<std::size_t>(rank)];
      bytes.gather_sent += own * (shards.ranks() - 1) * wire_;
      bytes.gather_received += (shards.buckets()[b].count - own) * wire_;
    }
    return bytes;
  }

  const RunConfig& config_;
  const ModelConfig& model_;
  int rank_;
  MeshPosition at_;
  ModelShard shard_;
  LayerShapes shapes_;
  std::int64_t wire_, sum_, stream_;  // bytes an element
  std::vector<ExchangeBytes> exchange_;  // of the micro-batch's distinct layers
  Traffic traffic_;
};

}  // namespace

RoutedRows uniform_routes(const StepBatch& batch, const RunConfig& config, int rank) {
  const ModelConfig& m = config.model.config;
  const MeshSizes& mesh = config.parallel.mesh;
  RoutedRows routed;
  if (m.num_experts == 0 || mesh.expert == 1) return routed;
  const int tensor = position_of(mesh, rank).tensor;
  for (const MicroStep& micro : batch.micro)
    for (const LayerRange& layers : shard_of(config, rank).chunks)
      for (std::int64_t l = layers.begin; l < layers.end; ++l) {
        if (!m.sparse(l)) continue;
        const std::int64_t rows =
            scattered_share(count_of(micro.plan.at(l).out), tensor, mesh.tensor).count;
        const std::int64_t away =
            rows * m.num_experts_per_tok * (mesh.expert - 1) / mesh.expert;
        routed.forward.sent += away;
        routed.forward.received += away;
        if (config.recompute[static_cast<std::size_t>(l)] == Recompute::none) continue;
        routed.again.sent += away;
        routed.again.received += away;
      }
  return routed;
}

Traffic plan_traffic(const StepBatch& batch, const RunConfig& config, int rank,
                     const RoutedRows& routed, bool update) {
  StepTraffic step(config, rank);
  for (const MicroStep& micro : batch.micro) step.micro_batch(micro);
  step.experts(routed);
  step.parameters(count_of(batch.micro), update);
  return step.traffic();
}

}  // namespace bdlm
