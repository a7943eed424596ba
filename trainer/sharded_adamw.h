// SPDX-License-Identifier: Apache-2.0
// AdamW with its state sharded over the replicas (ZeRO-1): gradients are summed and scattered, each
// rank updates the parts that it owns, new parameters are gathered.
#pragma once

#include <cstdint>
#include <functional>
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

  /// Sums of the gradients over the replicas; every rank keeps its parts.
  void reduce_gradients();
  /// Of the whole reduced gradient. The same bits on every rank, not finite on all or on none.
  double gradient_norm();
  /// One update (counted from 1) with the reduced gradients times `scale`, then the gathering.
  void update(double lr, double scale, std::int64_t update);

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
  void gather();

  Device& device_;
  Decoder& model_;
  Communicator& replicas_;
  OptimizerSection options_;
  ShardLayout layout_;
  std::vector<FlatRange> parts_;
  std::vector<std::int64_t> begin_;            // of each part in the owned range
  std::vector<std::vector<DecayRun>> runs_;    // by bucket
  Buffer reduced_, master_, first_, second_;   // [1, owned]
};

}  // namespace bdlm
