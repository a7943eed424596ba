// SPDX-License-Identifier: Apache-2.0
// AdamW with its state sharded over the replicas (ZeRO-1): gradients are summed and scattered, each
// rank updates the parts that it owns, new parameters are gathered.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "model/decoder.h"
#include "parallel/communicator.h"
#include "parallel/zero.h"
#include "trainer/checkpoint.h"
#include "trainer/run_config.h"

namespace bdlm {

/// Owns a StateShare: this rank's part of masters and moments in the host's memory.
struct HostState {
  std::vector<FlatRange> parts;
  DType dtype = DType::f32;
  std::vector<std::byte> master, first, second;

  StateShare share();  // a view
};

class ShardedAdamW {
 public:
  ShardedAdamW(Device& device, Decoder& model, Communicator& replicas,
               const OptimizerSection& options, double bucket_mib);

  /// Own masters from `source(first element, count, out)`, zero moments; then gathers the weights.
  /// Collective over the replicas, like all of the following.
  void start(const std::function<void(std::int64_t, std::int64_t, double*)>& source);

  /// Sums of the gradients over the replicas; every rank keeps its parts. begin_reduction is for a
  /// backward pass that completes them: what it has completed travels while it goes on.
  void begin_reduction();
  void reduce_gradients();
  /// Of the whole reduced gradient. The same bits on every rank, not finite on all or on none.
  double gradient_norm();
  /// One update (counted from 1) with the reduced gradients times `scale`. The new parameters are on
  /// their way to everybody when it returns; the model's next forward pass waits for them as it
  /// needs them.
  void update(double lr, double scale, std::int64_t update);
  /// Waits for all of them: for whoever reads the weights otherwise.
  void wait_for_weights();

  /// The whole reduced gradient in the model's flat gradient range, for comparisons.
  void gather_gradients();

  HostState save() const;           // a copy; not collective
  HostState empty_state() const;    // of the same shape, to be filled by load_checkpoint
  void load(const HostState& state);  // then gathers the weights

  const ShardLayout& layout() const { return layout_; }

 private:
  Tensor part(Tensor flat, std::size_t bucket) const;         // own part of the flat range
  Tensor owned(Tensor state, std::size_t bucket) const;       // own part of the owned range
  Tensor master(std::size_t bucket) const;
  bool sharded() const { return replicas_.size() > 1; }
  void gather();

  Device& device_;
  Decoder& model_;
  Communicator& replicas_;
  OptimizerSection options_;
  ShardLayout layout_;
  std::vector<FlatRange> parts_;
  std::vector<std::int64_t> begin_;            // of each part in the owned range
  std::vector<DecayRuns> runs_;                // by bucket
  Buffer reduced_, master_, first_, second_;   // [1, owned]
  // After the buffers: destroyed first, and a transfer waits for its memory.
  std::optional<GradientReduction> reduction_;
  std::optional<ParameterGathering> gathering_;
};

}  // namespace bdlm
