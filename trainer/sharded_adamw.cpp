// SPDX-License-Identifier: Apache-2.0
#include "trainer/sharded_adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace bdlm {
namespace {

/// Which elements of a part decay: matrices do, vectors and alignment gaps do not.
std::vector<DecayRun> decay_runs(const ParameterLayout& layout, FlatRange part) {
  std::vector<DecayRun> runs;
  const std::int64_t end = part.begin + part.count;
  std::int64_t at = part.begin;
  for (const Parameter& p : layout.tensors) {
    const std::int64_t first = std::max(p.offset, at), last = std::min(p.offset + p.size(), end);
    if (first >= last) continue;
    if (first > at) runs.push_back({at - part.begin, first - at, false});
    runs.push_back({first - part.begin, last - first, !p.vector});
    at = last;
  }
  if (at < end) runs.push_back({at - part.begin, end - at, false});
  return runs;
}

}  // namespace

StateShare HostState::share() {
  const auto view = [this](std::vector<std::byte>& bytes) {
    const auto n = static_cast<std::int64_t>(bytes.size() / size_of(dtype));
    return Tensor{bytes.data(), 1, n, n, dtype};
  };
  return {parts, view(master), view(first), view(second)};
}

ShardedAdamW::ShardedAdamW(Device& device, Decoder& model, Communicator& replicas,
                           const OptimizerSection& options, double bucket_mib)
    : device_(device),
      model_(model),
      replicas_(replicas),
      options_(options),
      layout_(shard_layout(model.layout().size, replicas.size(), bucket_mib,
                           model.gradients().dtype)),
      parts_(layout_.parts(replicas.rank())) {
  std::int64_t owned = 0;
  for (const FlatRange& part : parts_) {
    begin_.push_back(owned);
    owned += part.count;
    runs_.push_back(device.upload_decay(decay_runs(model.layout(), part)));
  }
  const DType sums = model.gradients().dtype;
  if (replicas.size() > 1) reduced_ = device.allocate(1, owned, sums, Memory::gradients);
  // Weights that are exact are their own masters.
  if (model.weights().dtype != sums) master_ = device.allocate(1, owned, sums, Memory::optimizer);
  first_ = device.allocate(1, owned, sums, Memory::optimizer);
  second_ = device.allocate(1, owned, sums, Memory::optimizer);
  device.zero(first_);
  device.zero(second_);
}

Tensor ShardedAdamW::part(Tensor flat, std::size_t bucket) const {
  return flat.slice_cols(parts_[bucket].begin, parts_[bucket].count);
}
Tensor ShardedAdamW::owned(Tensor state, std::size_t bucket) const {
  return state.slice_cols(begin_[bucket], parts_[bucket].count);
}
Tensor ShardedAdamW::master(std::size_t bucket) const {
  return master_ ? owned(master_, bucket) : part(model_.weights(), bucket);
}

void ShardedAdamW::gather() {
  wait_for_weights();
  all_gather_parameters(replicas_, layout_, model_.weights());
}

void ShardedAdamW::wait_for_weights() {
  if (gathering_) gathering_->finish();
  gathering_.reset();
}

void ShardedAdamW::start(
    const std::function<void(std::int64_t, std::int64_t, double*)>& source) {
  std::vector<double> wide;
  std::vector<float> narrow;
  for (std::size_t b = 0; b < parts_.size(); ++b) {
    wide.resize(static_cast<std::size_t>(parts_[b].count));
    source(parts_[b].begin, parts_[b].count, wide.data());
    const Tensor target = master(b);
    if (target.dtype == DType::f64) {
      device_.copy_from_host(wide.data(), target);
    } else {
      narrow.assign(wide.begin(), wide.end());
      device_.copy_from_host(narrow.data(), target);
    }
    if (master_) device_.copy(target, part(model_.weights(), b));
  }
  gather();
}

void ShardedAdamW::begin_reduction() {
  if (!sharded()) return;
  reduction_.emplace(replicas_, layout_, model_.gradients(), reduced_);
  model_.gradients_added = [this](std::int64_t begin) { reduction_->from(begin); };
}

void ShardedAdamW::reduce_gradients() {
  if (!sharded()) return;
  if (!reduction_) begin_reduction();
  model_.gradients_added = nullptr;
  reduction_->finish();
  reduction_.reset();
}

double ShardedAdamW::gradient_norm() {
  double sum = device_.squared_norm(sharded() ? reduced_.tensor() : model_.gradients());
  replicas_.all_reduce(std::span(&sum, 1), Reduce::sum);
  return std::sqrt(sum);
}

void ShardedAdamW::update(double lr, double scale, std::int64_t update) {
  const AdamW args{lr,     options_.beta1, options_.beta2, options_.eps, options_.weight_decay,
                   update, scale};
  wait_for_weights();
  if (sharded()) {
    gathering_.emplace(replicas_, layout_, model_.weights());
    model_.weights_needed = [this](std::int64_t end) {
      if (gathering_) gathering_->until(end);
    };
  }
  for (std::size_t b = 0; b < parts_.size(); ++b) {
    const Tensor gradient = sharded() ? owned(reduced_, b) : part(model_.gradients(), b);
    device_.adamw(args, runs_[b], master(b), gradient, owned(first_, b), owned(second_, b),
                  part(model_.weights(), b));
    if (gathering_) gathering_->start_next();
  }
}

void ShardedAdamW::gather_gradients() {
  if (!sharded()) return;
  for (std::size_t b = 0; b < parts_.size(); ++b)
    device_.copy(owned(reduced_, b), part(model_.gradients(), b));
  all_gather_parameters(replicas_, layout_, model_.gradients());
}

HostState ShardedAdamW::empty_state() const {
  HostState state;
  state.parts = parts_;
  state.dtype = first_.tensor().dtype;
  const auto elements = static_cast<std::size_t>(layout_.owned(replicas_.rank()));
  const std::size_t bytes = elements * size_of(state.dtype);
  for (auto* part : {&state.master, &state.first, &state.second}) part->resize(bytes);
  return state;
}

HostState ShardedAdamW::save() const {
  HostState state = empty_state();
  for (std::size_t b = 0; b < parts_.size(); ++b)
    device_.copy_to_host(master(b), state.master.data() + static_cast<std::size_t>(begin_[b]) *
                                                              size_of(state.dtype));
  device_.copy_to_host(first_, state.first.data());
  device_.copy_to_host(second_, state.second.data());
  return state;
}

void ShardedAdamW::load(const HostState& state) {
  wait_for_weights();
  for (std::size_t b = 0; b < parts_.size(); ++b) {
    device_.copy_from_host(
        state.master.data() + static_cast<std::size_t>(begin_[b]) * size_of(state.dtype),
        master(b));
    if (master_) device_.copy(master(b), part(model_.weights(), b));
  }
  device_.copy_from_host(state.first.data(), first_);
  device_.copy_from_host(state.second.data(), second_);
  gather();
}

}  // namespace bdlm
