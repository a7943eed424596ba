// SPDX-License-Identifier: Apache-2.0
// All parameters of a rank, a ParameterSet for every set of holders that it has, as the decoder asks
// for them and as the optimizer updates them.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "model/parameter_store.h"
#include "parallel/mesh.h"
#include "trainer/parameter_set.h"

namespace bdlm {

class ShardedParameters final : public ParameterStore {
 public:
  ShardedParameters(Device& device, Mesh& mesh, ParameterLayout layout, const ZeroOptions& options);

  const ParameterLayout& layout() const { return layout_; }
  DType compute() const { return compute_; }
  /// Of every set that has elements, ascending in the flat range.
  const std::vector<ParameterSet*>& sets() const { return present_; }
  /// The parts of the flat range that this rank owns, ascending. Every element of the model has one
  /// owner in the world.
  std::vector<FlatRange> owned_parts() const;

  ParameterMemory weights(std::size_t unit, std::optional<std::size_t> next) override;
  void release(std::size_t unit) override;
  ParameterMemory gradients(std::size_t unit) override;
  void gradients_added(std::size_t unit) override;

  /// Starts a step.
  void zero_gradients();
  /// The passes from now on are the last that add to their units: what they have completed is summed
  /// while they go on.
  void complete_gradients(bool final) { final_ = final; }
  void finish_reduction();

  /// Sets all weights here; source(first element of the flat range, count, out) gives them.
  using Source = std::function<void(std::int64_t, std::int64_t, double*)>;
  void fill(const Source& source);
  /// Everybody gets the owners' weights. Collective over the holders.
  void gather();

 private:
  ParameterLayout layout_;
  Device& device_;
  DType compute_;
  std::array<std::unique_ptr<ParameterSet>, holder_sets> sets_;  // null: none of its elements here
  std::vector<ParameterSet*> present_;
  bool final_ = false;
};

}  // namespace bdlm
