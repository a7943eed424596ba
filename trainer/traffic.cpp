// SPDX-License-Identifier: Apache-2.0
#include "trainer/traffic.h"

#include "parallel/watchdog.h"

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

}  // namespace

std::shared_ptr<Traffic> watched_traffic() {
  auto traffic = std::make_shared<Traffic>();
  traffic->activity = std::make_shared<Activity>();
  return traffic;
}

bool keeps_remote_kv(const RunConfig& config) {
  if (config.parallel.plan.exchange == ExchangeKind::ring) return false;  // memory is its point
  switch (config.parallel.keep_remote_kv) {
    case KeepRemote::yes:
      return true;
    case KeepRemote::no:
      return false;
    case KeepRemote::automatic:
      break;
  }
  // Whoever keeps all activations can keep these too; whoever recomputes wants the memory.
  for (const Recompute mode : config.recompute)
    if (mode != Recompute::none) return false;
  return true;
}

ExchangePasses exchange_passes(const RunConfig& config, Recompute layer) {
  ExchangePasses passes;
  if (keeps_remote_kv(config)) return passes;
  // The ring holds two shards at a time: attending again and the gradients take a round each.
  const bool ring = config.parallel.plan.exchange == ExchangeKind::ring;
  passes.again = ring && layer == Recompute::full ? 2 : 1;
  return passes;
}

Traffic plan_traffic(const StepBatch& batch, const RunConfig& config, const ShardLayout& shards,
                     Seat seat, int replica_rank, bool update) {
  const auto wire = static_cast<std::int64_t>(size_of(config.run.dtype));
  const auto sum = static_cast<std::int64_t>(size_of(accumulate_type(config.run.dtype)));
  const LayerShapes shapes = layer_shapes(config.model.config);
  Traffic traffic;
  for (const MicroStep& micro : batch.micro) {
    std::vector<ExchangeBytes> bytes;  // by distinct layer
    for (std::size_t kind = 0; kind < micro.plan.distinct.size(); ++kind)
      bytes.push_back(exchange_bytes(one_layer(micro.plan, kind), shapes, config.parallel.plan,
                                     seat.rank, wire, sum));
    for (std::size_t l = 0; l < micro.plan.layer.size(); ++l) {
      const ExchangeBytes& b = bytes[static_cast<std::size_t>(micro.plan.layer[l])];
      const ExchangePasses passes = exchange_passes(config, config.recompute[l]);
      add(traffic, Purpose::exchange_forward, passes.forward, b.forward_sent, b.forward_received);
      add(traffic, Purpose::exchange_recompute, passes.again, b.forward_sent, b.forward_received);
      add(traffic, Purpose::exchange_gradient, passes.gradient, b.gradient_sent,
          b.gradient_received);
    }
  }
  const ZeroBytes zero = zero_bytes(shards, replica_rank, sum, wire);
  add(traffic, Purpose::gradient_reduce, 1, zero.reduce_sent, zero.reduce_received);
  if (update) add(traffic, Purpose::parameter_gather, 1, zero.gather_sent, zero.gather_received);
  return traffic;
}

}  // namespace bdlm
