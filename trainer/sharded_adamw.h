// SPDX-License-Identifier: Apache-2.0
// AdamW with its state at the owners of the parameters (ZeRO): each rank updates the parts that it
// owns, from gradients that have been summed there.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "trainer/checkpoint.h"
#include "trainer/run_config.h"
#include "trainer/sharded_parameters.h"

namespace bdlm {

/// Owns a StateShare: this rank's part of masters and moments in the host's memory.
struct HostState {
  std::vector<FlatRange> parts;
  DType dtype = DType::f32;
  std::vector<std::byte> master, first, second;

  StateShare share();  // a view
  /// Masters of elements [begin, begin + count) of the flat range, all of one part.
  void masters(std::int64_t begin, std::int64_t count, double* out) const;
};
/// Of those parts, zeros.
HostState host_state(std::vector<FlatRange> parts, DType dtype, bool moments);

class ShardedAdamW {
 public:
  ShardedAdamW(Device& device, ShardedParameters& parameters, Communicator& world,
               const OptimizerSection& options);

  /// Own masters from the source, zero moments; then everybody gets the weights. Collective over the
  /// world, like all of the following.
  void start(const ShardedParameters::Source& source);

  /// Of the whole reduced gradient, every element of the model counted once. The same bits on every
  /// rank, not finite on all or on none.
  double gradient_norm();
  /// One update (counted from 1) with the reduced gradients times `scale`. The new parameters are on
  /// their way to everybody when it returns; the next forward pass waits for them as it needs them.
  void update(double lr, double scale, std::int64_t update);

  HostState save() const;           // a copy; not collective
  HostState empty_state() const;    // of the same shape, to be filled by load_checkpoint
  void load(const HostState& state);  // then everybody gets the weights
  /// The own summed gradients and the own masters as f64, one of ShardedParameters::owned_parts()
  /// after another. For comparisons; not collective.
  std::vector<double> own_gradients() const;
  std::vector<double> own_masters() const;

 private:
  /// One bucket's own part: elements [part] of the flat range.
  struct Piece {
    ParameterSet* set = nullptr;
    std::size_t bucket = 0;
    FlatRange part;
    std::int64_t begin = 0;  // in the state's buffers
    DecayRuns runs;
  };
  template <class Of>
  std::vector<double> own_values(Of of) const;
  Tensor state(Tensor all, const Piece& piece) const {
    return all.slice_cols(piece.begin, piece.part.count);
  }
  Tensor master(const Piece& piece) const {
    return master_ ? state(master_, piece) : piece.set->own_weights(piece.bucket);
  }

  Device& device_;
  ShardedParameters& parameters_;
  Communicator& world_;
  OptimizerSection options_;
  DType sums_;
  std::vector<Piece> pieces_;  // ascending in the flat range
  std::int64_t owned_ = 0;
  Buffer master_, first_, second_;  // [1, owned]
};

}  // namespace bdlm
