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

LayerLists upload_layer(Device& device, const LayerPlan& plan) {
  LayerLists lists;
  lists.positions = list(device, plan.positions);
  lists.out = list(device, plan.out);
  lists.out_positions = list(device, plan.out_positions);
  lists.own = intervals(device, plan.own);
  for (const Peer& peer : plan.peers) lists.peers.push_back(intervals(device, peer.parts));
  return lists;
}

}  // namespace

Tensor LayerContext::operand(Tensor x, Buffer& copy) const {
  if (x.dtype == compute) return x;
  copy = activation(x.rows, x.cols);
  device.copy(x, copy);
  return copy;
}

std::vector<LayerLists> upload(Device& device, const StepPlan& plan) {
  std::vector<LayerLists> lists;
  for (const LayerPlan& layer : plan.distinct) lists.push_back(upload_layer(device, layer));
  return lists;
}

}  // namespace bdlm
