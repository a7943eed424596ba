// SPDX-License-Identifier: Apache-2.0
#include "trainer/sharded_parameters.h"

#include <algorithm>
#include <utility>

#include "kernels/error.h"

namespace bdlm {

ShardedParameters::ShardedParameters(Device& device, Mesh& mesh, ParameterLayout layout,
                                     const ZeroOptions& options)
    : layout_(std::move(layout)), device_(device), compute_(options.compute) {
  for (std::size_t h = 0; h < holder_sets; ++h) {
    if (layout_.sets[h].count == 0) continue;
    const auto set = static_cast<Holders>(h);
    sets_[h] =
        std::make_unique<ParameterSet>(device, mesh.holders(set), layout_, set, options);
    present_.push_back(sets_[h].get());
  }
}

std::vector<FlatRange> ShardedParameters::owned_parts() const {
  std::vector<FlatRange> parts;
  for (const ParameterSet* set : present_)
    parts.insert(parts.end(), set->parts().begin(), set->parts().end());
  return parts;
}

ParameterMemory ShardedParameters::weights(std::size_t unit, std::optional<std::size_t> next) {
  for (ParameterSet* set : present_) set->need_weights(unit);
  if (next)
    for (ParameterSet* set : present_) set->prefetch_weights(*next);
  return [this, unit](Holders h, FlatRange range) {
    const auto& set = sets_[static_cast<std::size_t>(h)];
    return set ? set->weights(unit, range) : Tensor{};
  };
}

void ShardedParameters::release(std::size_t unit) {
  for (ParameterSet* set : present_) set->release(unit);
}

ParameterMemory ShardedParameters::gradients(std::size_t unit) {
  for (ParameterSet* set : present_) set->need_gradients(unit);
  return [this, unit](Holders h, FlatRange range) {
    const auto& set = sets_[static_cast<std::size_t>(h)];
    return set ? set->gradients(unit, range) : Tensor{};
  };
}

void ShardedParameters::gradients_added(std::size_t unit) {
  for (ParameterSet* set : present_) set->gradients_added(unit, final_);
}

void ShardedParameters::zero_gradients() {
  for (ParameterSet* set : present_) set->zero_gradients();
}

void ShardedParameters::finish_reduction() {
  for (ParameterSet* set : present_) set->finish_reduction();
  final_ = false;
}

void ShardedParameters::fill(const Source& source) {
  constexpr std::int64_t at_once = 1 << 20;
  std::vector<double> host;
  for (ParameterSet* set : present_)
    for (std::size_t b = 0; b < set->parts().size(); ++b) {
      const FlatRange part = set->parts()[b];
      for (std::int64_t first = 0; first < part.count; first += at_once) {
        const std::int64_t count = std::min(at_once, part.count - first);
        host.resize(static_cast<std::size_t>(count));
        source(part.begin + first, count, host.data());
        const Buffer wide = device_.allocate(1, count, DType::f64, Memory::workspace);
        device_.copy_from_host(host.data(), wide);
        device_.copy(wide, set->own_weights(b).slice_cols(first, count));
      }
    }
  gather();
}

void ShardedParameters::gather() {
  for (ParameterSet* set : present_) {
    set->begin_gathering();
    for (std::size_t b = 0; b < set->parts().size(); ++b) set->start_gather_next();
    set->finish_gathering();
  }
}

}  // namespace bdlm
