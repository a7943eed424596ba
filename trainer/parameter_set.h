// SPDX-License-Identifier: Apache-2.0
// Weights and gradients of the parameters that one set of ranks holds in common, under ZeRO
// (Rajbhandari et al., arXiv 1910.02054). Every rank of the set owns a part of each bucket.
//   1: all weights and gradients are here; a step's gradients are summed at its owners
//   2: of the gradients only the own parts are; a unit's are summed after each of its backward passes
//   3: of the weights too; a unit's are gathered before use and dropped after it
// A set of one rank has nothing to share, and one that spans stages, whose passes come in different
// orders, keeps to 1.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/device.h"
#include "model/parameters.h"
#include "parallel/communicator.h"
#include "parallel/zero.h"

namespace bdlm {

struct ZeroOptions {
  int level = 1;
  double bucket_mib = 8;
  DType compute = DType::f32;
  bool train = true;
};

/// What of `level` a set of holders makes use of.
int zero_level_of(Holders set, int level, int ranks);
/// How a set's part of the flat range is cut over its ranks; at level 2 and 3 by units.
ShardLayout shards_of(const ParameterLayout& layout, Holders set, int ranks,
                      const ZeroOptions& options);

class ParameterSet {
 public:
  ParameterSet(Device& device, Communicator& group, const ParameterLayout& layout, Holders set,
               const ZeroOptions& options);

  const ShardLayout& shards() const { return shards_; }
  const std::vector<FlatRange>& parts() const { return parts_; }  // own, by bucket
  std::int64_t owned() const { return owned_; }
  /// Own part of a bucket: its weights; its summed gradients (after finish_reduction).
  Tensor own_weights(std::size_t bucket) const;
  Tensor own_gradients(std::size_t bucket) const;
  /// All of them, one after another, [1, owned()] or, with one rank, the set's range.
  Tensor own_gradients() const { return reduced_ ? reduced_ : gradients_; }

  // What ParameterStore asks for. `range` lies in the unit's part of this set.
  void need_weights(std::size_t unit);
  void prefetch_weights(std::size_t unit);
  Tensor weights(std::size_t unit, FlatRange range) const;
  void release(std::size_t unit);
  void need_gradients(std::size_t unit);
  Tensor gradients(std::size_t unit, FlatRange range) const;
  /// final: no other pass of the step adds to the unit.
  void gradients_added(std::size_t unit, bool final);

  void zero_gradients();
  /// Own gradients are sums over the set. Collective.
  void finish_reduction();
  /// Of a bucket the own weights are new; everybody gets them (not at level 3, where they are asked
  /// for when they are needed).
  void begin_gathering();
  void start_gather_next();
  void finish_gathering();

 private:
  struct UnitMemory {
    Buffer memory;
    std::vector<std::unique_ptr<Transfer>> arriving;
    int users = 0;
  };
  FlatRange part_of(std::size_t unit) const { return layout_.units[unit][index_]; }
  Tensor own(Tensor owned, std::size_t bucket) const {
    return owned.slice_cols(begin_[bucket], parts_[bucket].count);
  }
  void check_inside(std::size_t unit, FlatRange range) const;
  void settle();  // sums of the unit before are added

  Device& device_;
  Communicator& group_;
  const ParameterLayout& layout_;
  std::size_t index_;  // of the set
  int level_;
  DType compute_;
  ShardLayout shards_;
  std::vector<FlatRange> parts_;
  std::vector<std::int64_t> begin_;  // of each part among the own elements
  std::int64_t owned_ = 0;
  bool across_stages_;
  Buffer weights_;    // [1, range], at level 3 [1, owned]
  Buffer gradients_;  // [1, range]; at level 1
  Buffer reduced_;    // [1, owned]; more than one rank
  std::vector<UnitMemory> gathered_, adding_;  // by unit
  struct Sum {
    std::unique_ptr<Transfer> transfer;
    Buffer sum;
    std::size_t bucket = 0;
  };
  std::vector<Sum> sums_;  // under way
  Buffer summed_unit_;     // whose gradients they are sums of
  std::optional<GradientReduction> reduction_;
  std::optional<ParameterGathering> gathering_;
};

}  // namespace bdlm
