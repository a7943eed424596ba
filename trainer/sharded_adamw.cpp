// SPDX-License-Identifier: Apache-2.0
#include "trainer/sharded_adamw.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace bdlm {
namespace {

/// Which elements of a part decay: matrices do; vectors, what is frozen and alignment gaps do not.
std::vector<DecayRun> decay_runs(const ParameterLayout& layout, FlatRange part) {
  std::vector<DecayRun> runs;
  const std::int64_t end = part.begin + part.count;
  std::int64_t at = part.begin;
  for (const Parameter& p : layout.tensors) {
    const std::int64_t first = std::max(p.offset, at), last = std::min(p.offset + p.size(), end);
    if (first >= last) continue;
    if (first > at) runs.push_back({at - part.begin, first - at, false});
    runs.push_back({first - part.begin, last - first, !p.vector && !p.frozen});
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

void HostState::masters(std::int64_t begin, std::int64_t count, double* out) const {
  std::int64_t at = 0;
  auto part = parts.begin();
  for (; begin >= part->begin + part->count; ++part) at += part->count;
  const std::int64_t place = at + begin - part->begin;
  if (dtype == DType::f64) {
    std::copy_n(reinterpret_cast<const double*>(master.data()) + place, count, out);
  } else {
    std::copy_n(reinterpret_cast<const float*>(master.data()) + place, count, out);
  }
}

HostState host_state(std::vector<FlatRange> parts, DType dtype, bool moments) {
  HostState state;
  std::size_t bytes = 0;
  for (const FlatRange& part : parts) bytes += static_cast<std::size_t>(part.count) * size_of(dtype);
  state.parts = std::move(parts);
  state.dtype = dtype;
  state.master.resize(bytes);
  if (!moments) return state;
  state.first.resize(bytes);
  state.second.resize(bytes);
  return state;
}

ShardedAdamW::ShardedAdamW(Device& device, ShardedParameters& parameters, Communicator& world,
                           const OptimizerSection& options)
    : device_(device),
      parameters_(parameters),
      world_(world),
      options_(options),
      sums_(accumulate_type(parameters.compute())) {
  for (ParameterSet* set : parameters.sets())
    for (std::size_t b = 0; b < set->parts().size(); ++b) {
      const FlatRange part = set->parts()[b];
      pieces_.push_back(
          {set, b, part, owned_, device.upload_decay(decay_runs(parameters.layout(), part))});
      owned_ += part.count;
    }
  // Weights that are exact are their own masters.
  if (parameters.compute() != sums_)
    master_ = device.allocate(1, owned_, sums_, Memory::optimizer);
  first_ = device.allocate(1, owned_, sums_, Memory::optimizer);
  second_ = device.allocate(1, owned_, sums_, Memory::optimizer);
  device.zero(first_);
  device.zero(second_);
}

void ShardedAdamW::start(const ShardedParameters::Source& source) {
  std::vector<double> wide;
  std::vector<float> narrow;
  for (const Piece& piece : pieces_) {
    wide.resize(static_cast<std::size_t>(piece.part.count));
    source(piece.part.begin, piece.part.count, wide.data());
    const Tensor target = master(piece);
    if (target.dtype == DType::f64) {
      device_.copy_from_host(wide.data(), target);
    } else {
      narrow.assign(wide.begin(), wide.end());
      device_.copy_from_host(narrow.data(), target);
    }
    if (master_) device_.copy(target, piece.set->own_weights(piece.bucket));
  }
  parameters_.gather();
}

double ShardedAdamW::gradient_norm() {
  double sum = 0;
  for (const ParameterSet* set : parameters_.sets())
    sum += device_.squared_norm(set->own_gradients());
  world_.all_reduce(std::span(&sum, 1), Reduce::sum);
  return std::sqrt(sum);
}

void ShardedAdamW::update(double lr, double scale, std::int64_t update) {
  const AdamW args{lr,     options_.beta1, options_.beta2, options_.eps, options_.weight_decay,
                   update, scale};
  for (ParameterSet* set : parameters_.sets()) set->begin_gathering();
  for (const Piece& piece : pieces_) {
    device_.adamw(args, piece.runs, master(piece), piece.set->own_gradients(piece.bucket),
                  state(first_, piece), state(second_, piece),
                  piece.set->own_weights(piece.bucket));
    piece.set->start_gather_next();
  }
}

HostState ShardedAdamW::empty_state() const {
  return host_state(parameters_.owned_parts(), sums_, true);
}

HostState ShardedAdamW::save() const {
  HostState state = empty_state();
  for (const Piece& piece : pieces_)
    device_.copy_to_host(master(piece), state.master.data() + static_cast<std::size_t>(piece.begin) *
                                                                  size_of(state.dtype));
  device_.copy_to_host(first_, state.first.data());
  device_.copy_to_host(second_, state.second.data());
  return state;
}

void ShardedAdamW::load(const HostState& state) {
  for (const Piece& piece : pieces_) {
    piece.set->finish_gathering();
    device_.copy_from_host(
        state.master.data() + static_cast<std::size_t>(piece.begin) * size_of(state.dtype),
        master(piece));
    if (master_) device_.copy(master(piece), piece.set->own_weights(piece.bucket));
  }
  device_.copy_from_host(state.first.data(), first_);
  device_.copy_from_host(state.second.data(), second_);
  parameters_.gather();
}

template <class Of>
std::vector<double> ShardedAdamW::own_values(Of of) const {
  std::vector<double> host(static_cast<std::size_t>(owned_));
  for (const Piece& piece : pieces_) {
    const Tensor values = of(piece);
    const Buffer wide = device_.allocate(1, values.cols, DType::f64, Memory::workspace);
    device_.copy(values, wide);
    device_.copy_to_host(wide, host.data() + piece.begin);
  }
  return host;
}

std::vector<double> ShardedAdamW::own_gradients() const {
  return own_values([](const Piece& piece) { return piece.set->own_gradients(piece.bucket); });
}

std::vector<double> ShardedAdamW::own_masters() const {
  return own_values([this](const Piece& piece) { return master(piece); });
}

}  // namespace bdlm
