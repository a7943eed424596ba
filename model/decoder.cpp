// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <algorithm>
#include <utility>

namespace bdlm {
namespace {

/// The table's rows of the ids, as the first layer's input.
Buffer embed(const LayerContext& c, Tensor table, const DeviceList<std::int32_t>& ids) {
  Buffer rows = c.activation(ids.count, table.cols);
  c.device.embedding_forward(ids.data, table, rows);
  if (c.stream == c.compute) return rows;
  Buffer x = c.residual(ids.count, table.cols);
  c.device.copy(rows, x);
  return x;
}

}  // namespace

Decoder::Decoder(Device& device, ModelConfig config, DecoderOptions options, Exchange& exchange,
                 bool train)
    : device_(device),
      config_(std::move(config)),
      options_(std::move(options)),
      exchange_(exchange),
      layout_(layout_of(config_)),
      weights_(device.allocate(1, layout_.size, options_.compute, Memory::parameters)),
      rotary_(device, config_, accumulate_type(options_.compute)) {
  require(options_.residual == options_.compute ||
              options_.residual == accumulate_type(options_.compute),
          "a residual stream of {} beside {}", name_of(options_.residual),
          name_of(options_.compute));
  w_ = view(weights_);
  g_.layers.resize(w_.layers.size());
  if (!train) return;
  gradients_ = device.allocate(1, layout_.size, accumulate_type(options_.compute),
                               Memory::gradients);
  device.zero(gradients_);
  g_ = view(gradients_);
}

Decoder::ModelTensors Decoder::view(Tensor flat) const {
  const ParameterMemory memory = in_flat(flat);
  const HeadView head = view_head(config_, layout_, memory);
  ModelTensors out{view_embedding(layout_, memory), {}, head.norm, head.head};
  for (std::int64_t layer = 0; layer < config_.num_hidden_layers; ++layer)
    out.layers.push_back(view_layer(config_, layout_, layer, memory));
  return out;
}

std::int64_t Decoder::layer_begin(std::size_t layer) const {
  return layout_
      .at(layer < w_.layers.size() ? fmt::format("model.layers.{}.input_layernorm.weight", layer)
                                   : "model.norm.weight")
      .offset;
}

LayerContext Decoder::context(const StepPlan& plan) {
  std::int32_t last = 0;
  for (const LayerPlan& layer : plan.distinct)
    for (const std::int32_t position : layer.positions) last = std::max(last, position);
  return {device_, config_, exchange_, rotary_.table(last + 1), options_.compute,
          options_.residual, options_.keep_remote_kv, work_};
}

Buffer Decoder::forward(const LayerContext& c, const StepPlan& plan,
                        const std::vector<LayerLists>& lists, const DeviceList<std::int32_t>& ids,
                        std::span<LayerActivations> saved) {
  need_weights(layer_begin(0));
  Buffer x = embed(c, w_.embedding, ids);
  for (std::size_t l = 0; l < w_.layers.size(); ++l) {
    const auto kind = static_cast<std::size_t>(plan.layer[l]);
    need_weights(layer_begin(l + 1));
    x = layer_forward(c, w_.layers[l], plan.distinct[kind], lists[kind], std::move(x),
                      options_.recompute[l], saved.empty() ? nullptr : &saved[l]);
    if (trace) trace(static_cast<std::int64_t>(l), plan.distinct[kind], x);
  }
  need_weights(layout_.size);
  return x;
}

std::vector<double> Decoder::loss(const StepPlan& plan, const DecoderInput& input) {
  return run(plan, input, false);
}

std::vector<double> Decoder::loss_and_gradients(const StepPlan& plan, const DecoderInput& input) {
  require(static_cast<bool>(gradients_), "a decoder made without gradients cannot be trained");
  return run(plan, input, true);
}

std::vector<double> Decoder::run(const StepPlan& plan, const DecoderInput& input, bool train) {
  const LayerContext c = context(plan);
  const auto lists = upload(device_, plan);
  const auto ids = device_.upload(std::span<const std::int32_t>(input.ids));
  std::vector<LayerActivations> saved(train ? w_.layers.size() : 0);
  Buffer x = forward(c, plan, lists, ids, saved);

  const HeadTensors tensors =
      train ? HeadTensors{w_.norm, w_.head, g_.norm, g_.head} : HeadTensors{w_.norm, w_.head, {}, {}};
  HeadResult head = head_loss(c, tensors, x, plan.head,
                              {input.targets, input.weights, options_.excluded},
                              options_.loss_chunk);
  x.reset();
  if (train) backward(c, plan, lists, input.ids, std::move(saved), std::move(head.dx));
  return to_host(device_, head.nll);
}

Buffer Decoder::logits(const StepPlan& plan, std::span<const std::int32_t> tokens) {
  const LayerContext c = context(plan);
  const auto lists = upload(device_, plan);
  const Buffer x = forward(c, plan, lists, device_.upload(tokens), {});
  return head_logits(c, {w_.norm, w_.head, {}, {}}, x, plan.head);
}

void Decoder::backward(const LayerContext& c, const StepPlan& plan,
                       const std::vector<LayerLists>& lists, std::span<const std::int32_t> ids,
                       std::vector<LayerActivations> saved, Buffer dx) {
  // Tied embeddings have got the head's part by now, but not their own.
  added_gradients(layer_begin(w_.layers.size()));
  for (std::size_t l = w_.layers.size(); l-- > 0;) {
    const auto kind = static_cast<std::size_t>(plan.layer[l]);
    dx = layer_backward(c, w_.layers[l], g_.layers[l], plan.distinct[kind], lists[kind],
                        options_.recompute[l], std::move(saved[l]), std::move(dx));
    added_gradients(layer_begin(l));
  }
  device_.embedding_backward(ids, dx, g_.embedding);
  added_gradients(0);
}

}  // namespace bdlm
