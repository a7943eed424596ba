// SPDX-License-Identifier: Apache-2.0
#include "model/layer_context.h"

#include <span>

namespace bdlm {
namespace {

template <class T>
DeviceList<T> list(Device& device, const std::vector<T>& host) {
  return device.upload(std::span<const T>(host));
}

std::vector<IntervalList> intervals(Device& device, const std::vector<KeyPart>& parts) {
  std::vector<IntervalList> lists;
  for (const KeyPart& part : parts)
    lists.push_back(device.upload_intervals(part.visible, part.count));
  return lists;
}

LayerLists upload_layer(Device& device, const LayerPlan& plan, const ScatteredRows& rows) {
  LayerLists lists;
  lists.positions = list(device, plan.positions);
  lists.out = list(device, plan.out);
  lists.out_positions = list(device, plan.out_positions);
  lists.own = intervals(device, plan.own);
  for (const Peer& peer : plan.peers) lists.peers.push_back(intervals(device, peer.parts));
  if (!plan.out_is_in) {
    lists.move = plan_move(plan.out, static_cast<std::int64_t>(plan.in.size()), rows.rank(),
                           rows.ranks());
    // A list of a device that shares the host's memory is a view of what must not move again.
    lists.held = device.upload(std::span<const std::int32_t>(lists.move.held));
  }
  if (!plan.packed.empty()) {
    const FlatRange here = rows.share(static_cast<std::int64_t>(plan.out.size()));
    lists.packed = device.upload(std::span<const std::int32_t>(plan.packed)
                                     .subspan(static_cast<std::size_t>(here.begin),
                                              static_cast<std::size_t>(here.count)));
  }
  return lists;
}

}  // namespace

Tensor LayerContext::operand(Tensor x, Buffer& copy) const {
  if (x.dtype == compute) return x;
  copy = activation(x.rows, x.cols);
  device.copy(x, copy);
  return copy;
}

Tensor LayerContext::all_rows(Tensor x, std::int64_t n, Buffer& copy) const {
  if (scattered.alone()) return operand(x, copy);
  Buffer rounded;
  const Tensor mine = operand(x, rounded);
  copy = activation(n, x.cols);
  scattered.gather(mine, copy);
  return copy;
}

Buffer LayerContext::norm_rows(Tensor x, std::int64_t n, Tensor weight, Tensor rstd) const {
  Buffer mine = activation(x.rows, x.cols);
  device.rms_norm_forward(x, weight, config.rms_norm_eps, mine, rstd);
  if (scattered.alone()) return mine;
  Buffer all = activation(n, x.cols);
  scattered.gather(mine, all);
  return all;
}

void LayerContext::norm_rows_backward(Tensor x, Tensor weight, Tensor rstd, Tensor dnormed,
                                      Tensor dx, Tensor dweight) const {
  if (scattered.alone()) {
    device.rms_norm_backward(x, weight, rstd, dnormed, dx, dweight);
    return;
  }
  const Buffer mine = activation(x.rows, x.cols);
  device.zero(mine);
  scattered.reduce(dnormed, mine);
  device.rms_norm_backward(x, weight, rstd, mine, dx, dweight);
}

std::vector<LayerLists> upload(Device& device, const StepPlan& plan, const ScatteredRows& rows) {
  std::vector<LayerLists> lists;
  for (const LayerPlan& layer : plan.distinct) lists.push_back(upload_layer(device, layer, rows));
  return lists;
}

}  // namespace bdlm
