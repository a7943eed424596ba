// SPDX-License-Identifier: Apache-2.0
#include "model/decoder.h"

#include <algorithm>
#include <utility>

#include "kernels/error.h"

namespace bdlm {

std::vector<double> Pass::losses(Device& device) const {
  return head.nll ? to_host(device, head.nll) : std::vector<double>();
}

void Pass::finish() {
  Buffer nll = std::move(head.nll);
  *this = Pass();
  head.nll = std::move(nll);
}

std::int64_t Pass::layers_held() const {
  return std::ranges::count_if(saved, [](const LayerActivations& a) { return bool(a.x); });
}

Decoder::Decoder(Device& device, const ModelConfig& config, ModelShard shard,
                 DecoderOptions options, DecoderGroups groups, ParameterStore& parameters)
    : device_(device),
      config_(config),
      local_(local_config(config, shard)),
      shard_(std::move(shard)),
      options_(std::move(options)),
      groups_(groups),
      parameters_(parameters),
      layout_(layout_of(config_, shard_)),
      rows_(device, groups.tensor),
      experts_(device, groups.expert, config.num_experts),
      balance_{groups.row},
      rotary_(device, local_, accumulate_type(options_.compute)) {
  require(options_.residual == options_.compute ||
              options_.residual == accumulate_type(options_.compute),
          "a residual stream of {} beside {}", name_of(options_.residual),
          name_of(options_.compute));
}

LayerContext Decoder::context(const StepPlan& plan) {
  std::int32_t last = 0;
  for (const LayerPlan& layer : plan.distinct)
    for (const std::int32_t position : layer.positions) last = std::max(last, position);
  return {device_,  local_,   groups_.exchange,         rows_,
          experts_, balance_, rotary_.table(last + 1),  options_.compute,
          options_.residual,  options_.keep_remote_kv,  work_};
}

std::size_t Decoder::unit_of(std::size_t chunk, std::int64_t layer) const {
  std::int64_t unit = 1 + layer - shard_.chunks[chunk].begin;
  for (std::size_t c = 0; c < chunk; ++c) unit += shard_.chunks[c].count();
  return static_cast<std::size_t>(unit);
}

std::int64_t Decoder::rows_in(const StepPlan& plan, std::size_t chunk) const {
  const auto rows = static_cast<std::int64_t>(plan.at(shard_.chunks[chunk].begin).in.size());
  return rows_.share(rows).count;
}

std::int64_t Decoder::rows_out(const StepPlan& plan, std::size_t chunk) const {
  const auto rows = static_cast<std::int64_t>(plan.at(shard_.chunks[chunk].end - 1).out.size());
  return rows_.share(rows).count;
}

Pass Decoder::begin(const StepPlan& plan, const DecoderInput& input, bool train) {
  Pass pass;
  pass.plan = &plan;
  pass.input = &input;
  pass.lists = upload(device_, plan, rows_);
  if (train) pass.saved.resize(static_cast<std::size_t>(shard_.layers()));
  if (shard_.first)
    pass.embedding = plan_embedding(input.ids, config_.vocab_size, rows_.rank(), rows_.ranks());
  return pass;
}

Buffer Decoder::forward(Pass& pass, std::size_t chunk, Buffer x) {
  const LayerContext c = context(*pass.plan);
  const LayerRange layers = shard_.chunks[chunk];
  if (embeds(chunk)) {
    const Tensor table = view_embedding(layout_, parameters_.weights(0, 1));
    x = embedding_forward(c, pass.embedding, table);
    parameters_.release(0);
  }
  for (std::int64_t l = layers.begin; l < layers.end; ++l) {
    const std::size_t unit = unit_of(chunk, l);
    const auto kind = static_cast<std::size_t>(pass.plan->layer[static_cast<std::size_t>(l)]);
    const bool more = l + 1 < layers.end || ends(chunk);
    const LayerTensors w = layer_tensors(
        l, parameters_.weights(unit, more ? std::optional(unit + 1) : std::nullopt));
    const LayerPlan& plan = pass.plan->distinct[kind];
    x = layer_forward(c, w, plan, pass.lists[kind], std::move(x),
                      options_.recompute[static_cast<std::size_t>(l)],
                      pass.saved.empty() ? nullptr : &pass.saved[unit - 1]);
    parameters_.release(unit);
    if (after_layer) after_layer();
    if (trace)
      trace(l, plan, x, rows_.share(static_cast<std::int64_t>(plan.out.size())).begin);
  }
  if (!ends(chunk)) return x;
  run_head(c, pass, x);
  return {};
}

HeadView Decoder::head_weights() {
  const ParameterMemory own = parameters_.weights(head_unit());
  // A tied head in the same place is the embedding, a unit of its own.
  const bool tied = config_.tie_word_embeddings && !shard_.pipelined;
  return view_head(config_, layout_, own, tied ? parameters_.weights(0) : own);
}

void Decoder::run_head(const LayerContext& c, Pass& pass, Tensor x) {
  const bool train = !pass.saved.empty();
  const bool tied = config_.tie_word_embeddings && !shard_.pipelined;
  const HeadView w = head_weights();
  HeadView g;
  if (train) {
    const ParameterMemory own = parameters_.gradients(head_unit());
    g = view_head(config_, layout_, own, tied ? parameters_.gradients(0) : own);
  }
  const std::int64_t first =
      share_of(config_.vocab_size, shard_.tensor_rank, shard_.tensor).begin;
  const auto out = static_cast<std::int64_t>(pass.plan->at(config_.num_hidden_layers - 1).out.size());
  pass.head = head_loss(c, {w.norm, w.head, g.norm, g.head, first}, x, out, pass.plan->head,
                        {pass.input->targets, pass.input->weights, options_.excluded},
                        options_.loss_chunk);
  parameters_.release(head_unit());
  if (tied) parameters_.release(0);
  if (train) parameters_.gradients_added(head_unit());
}

Buffer Decoder::backward(Pass& pass, std::size_t chunk, Buffer dy) {
  const LayerContext c = context(*pass.plan);
  const LayerRange layers = shard_.chunks[chunk];
  if (ends(chunk)) dy = std::move(pass.head.dx);
  for (std::int64_t l = layers.end; l-- > layers.begin;) {
    const std::size_t unit = unit_of(chunk, l);
    const auto kind = static_cast<std::size_t>(pass.plan->layer[static_cast<std::size_t>(l)]);
    const LayerTensors w = layer_tensors(
        l, parameters_.weights(unit, l > layers.begin ? std::optional(unit - 1) : std::nullopt));
    const LayerTensors g = layer_tensors(l, parameters_.gradients(unit));
    dy = layer_backward(c, w, g, pass.plan->distinct[kind], pass.lists[kind],
                        options_.recompute[static_cast<std::size_t>(l)],
                        std::move(pass.saved[unit - 1]), std::move(dy));
    parameters_.release(unit);
    parameters_.gradients_added(unit);
    if (after_layer) after_layer();
  }
  if (!embeds(chunk)) return dy;
  embedding_backward(c, pass.embedding, dy, view_embedding(layout_, parameters_.gradients(0)));
  parameters_.gradients_added(0);
  return {};
}

std::vector<double> Decoder::loss(const StepPlan& plan, const DecoderInput& input) {
  Pass pass = begin(plan, input, false);
  forward(pass, 0, {});
  return pass.losses(device_);
}

std::vector<double> Decoder::loss_and_gradients(const StepPlan& plan, const DecoderInput& input) {
  Pass pass = begin(plan, input, true);
  forward(pass, 0, {});
  backward(pass, 0, {});
  return pass.losses(device_);
}

Buffer Decoder::logits(const StepPlan& plan, std::span<const std::int32_t> ids) {
  require(shard_.chunks.size() == 1 && shard_.first && shard_.last && rows_.alone(),
          "logits are made by a rank that holds the whole model");
  const LayerContext c = context(plan);
  const auto lists = upload(device_, plan, rows_);
  Buffer x = embedding_forward(c, plan_embedding(ids, config_.vocab_size, 0, 1),
                               view_embedding(layout_, parameters_.weights(0)));
  for (std::int64_t l = 0; l < config_.num_hidden_layers; ++l) {
    const auto kind = static_cast<std::size_t>(plan.layer[static_cast<std::size_t>(l)]);
    x = layer_forward(c, layer_tensors(l, parameters_.weights(unit_of(0, l))), plan.distinct[kind],
                      lists[kind], std::move(x), Recompute::none, nullptr);
  }
  const HeadView head = head_weights();
  return head_logits(c, {head.norm, head.head, {}, {}}, x, plan.head);
}

}  // namespace bdlm
