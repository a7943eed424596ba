// SPDX-License-Identifier: Apache-2.0
#include "model/embedding.h"

#include <algorithm>
#include <numeric>

#include "model/model_shard.h"
#include "parallel/row_swap.h"

namespace bdlm {
namespace {

std::int64_t total(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

}  // namespace

EmbeddingPlan plan_embedding(std::span<const std::int32_t> ids, std::int64_t vocabulary, int rank,
                             int ranks) {
  EmbeddingPlan plan;
  const auto n = static_cast<std::int64_t>(ids.size());
  const FlatRange mine = share_of(vocabulary, rank, ranks);
  for (int r = 0; r < ranks; ++r) {
    const FlatRange rows = scattered_share(n, r, ranks);
    const std::size_t before = plan.lookup.size();
    for (const std::int32_t id : ids.subspan(static_cast<std::size_t>(rows.begin),
                                             static_cast<std::size_t>(rows.count)))
      if (id >= mine.begin && id < mine.begin + mine.count)
        plan.lookup.push_back(static_cast<std::int32_t>(id - mine.begin));
    plan.sends.push_back(static_cast<std::int64_t>(plan.lookup.size() - before));
  }
  const FlatRange here = scattered_share(n, rank, ranks);
  plan.order.resize(static_cast<std::size_t>(here.count));
  std::int32_t arrived = 0;
  for (int r = 0; r < ranks; ++r) {
    const FlatRange theirs = share_of(vocabulary, r, ranks);
    const std::int32_t before = arrived;
    for (std::int64_t i = 0; i < here.count; ++i) {
      const std::int32_t id = ids[static_cast<std::size_t>(here.begin + i)];
      if (id >= theirs.begin && id < theirs.begin + theirs.count)
        plan.order[static_cast<std::size_t>(i)] = arrived++;
    }
    plan.receives.push_back(arrived - before);
  }
  return plan;
}

Buffer embedding_forward(const LayerContext& c, const EmbeddingPlan& plan, Tensor table) {
  Device& device = c.device;
  const DeviceList<std::int32_t> lookup = device.upload(std::span<const std::int32_t>(plan.lookup));
  Buffer rows = c.activation(lookup.count, table.cols);
  device.embedding_forward(lookup.data, table, rows);
  if (!c.scattered.alone()) {
    const DeviceList<std::int32_t> order = device.upload(std::span<const std::int32_t>(plan.order));
    const Buffer arrived = c.activation(order.count, table.cols);
    c.scattered.swap(rows, plan.sends, arrived, plan.receives);
    rows = c.activation(order.count, table.cols);
    device.gather_rows(arrived, order.data, rows);
  }
  if (c.stream == c.compute) return rows;
  Buffer x = c.residual(rows.tensor().rows, table.cols);
  device.copy(rows, x);
  return x;
}

void embedding_backward(const LayerContext& c, const EmbeddingPlan& plan, Tensor dy,
                        Tensor dtable) {
  Device& device = c.device;
  if (c.scattered.alone()) {
    device.embedding_backward(plan.lookup, dy, dtable);
    return;
  }
  // Back the way they came.
  const DeviceList<std::int32_t> order = device.upload(std::span<const std::int32_t>(plan.order));
  const Buffer leaving = c.residual(dy.rows, dy.cols), home = c.residual(total(plan.sends), dy.cols);
  device.zero(leaving);
  device.scatter_add_rows(dy, order.data, leaving);
  c.scattered.swap(leaving, plan.receives, home, plan.sends);
  device.embedding_backward(plan.lookup, home, dtable);
}

}  // namespace bdlm
