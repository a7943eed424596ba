// SPDX-License-Identifier: Apache-2.0
// Sums over a plan: bytes of the exchange, rows and pairs of useful work.
#include <numeric>

#include "parallel/plan.h"

namespace bdlm {
namespace {

struct Rows {
  std::int64_t sent = 0, received = 0;
};

/// Point to point: keys go out as listed; gradients mirror them.
Rows direct_rows(const LayerPlan& layer) {
  Rows rows;
  for (const Peer& peer : layer.peers) {
    rows.sent += static_cast<std::int64_t>(peer.send.size());
    rows.received += peer.receive;
  }
  return rows;
}

/// Ring, from rank to rank + 1: P - 1 hops. Keys: a rank passes on all shards but that of the rank
/// it sends to, which has its own, and gets all but its own. A shard's gradient sum starts at its
/// first reader, one hop later, and ends at its owner.
struct RingRows {
  Rows keys, sums;
};

RingRows ring_rows(const LayerPlan& layer, int rank) {
  const auto ranks = layer.shard_rows.size();
  if (ranks == 1) return {};
  const auto shard = [&](std::size_t steps_on) {
    return layer.shard_rows[(static_cast<std::size_t>(rank) + steps_on) % ranks];
  };
  const std::int64_t all =
      std::accumulate(layer.shard_rows.begin(), layer.shard_rows.end(), std::int64_t{0});
  return {{all - shard(1), all - shard(0)}, {all - shard(0), all - shard(ranks - 1)}};
}

}  // namespace

ExchangeBytes exchange_bytes(const StepPlan& plan, const LayerShapes& model,
                             const PlanOptions& options, int rank, std::int64_t wire,
                             std::int64_t sum) {
  ExchangeBytes bytes;
  for (const int index : plan.layer) {
    const LayerPlan& layer = plan.distinct[static_cast<std::size_t>(index)];
    Rows keys, gradients;
    std::int64_t gradient_width = model.kv_width * wire;
    if (options.exchange == ExchangeKind::ring) {
      const RingRows ring = ring_rows(layer, rank);
      keys = ring.keys;
      gradients = ring.sums;
      gradient_width = model.kv_width * sum;
    } else {
      keys = direct_rows(layer);
      gradients = {keys.received, keys.sent};
    }
    bytes.forward_sent += keys.sent * model.kv_width * wire;
    bytes.forward_received += keys.received * model.kv_width * wire;
    bytes.gradient_sent += gradients.sent * gradient_width;
    bytes.gradient_received += gradients.received * gradient_width;
  }
  return bytes;
}

WorkCounts count_work(const StepPlan& plan) {
  WorkCounts work;
  for (const int index : plan.layer) {
    const LayerPlan& layer = plan.distinct[static_cast<std::size_t>(index)];
    work.layer_rows += static_cast<std::int64_t>(layer.out.size());
    work.key_rows += static_cast<std::int64_t>(layer.in.size());
    work.pairs += layer.pairs();
  }
  work.head_rows = static_cast<std::int64_t>(plan.head.size());
  return work;
}

}  // namespace bdlm
