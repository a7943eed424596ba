// SPDX-License-Identifier: Apache-2.0
// ZeRO (Rajbhandari et al., arXiv 1910.02054): the flat parameter range is cut into buckets and
// every bucket into one part a replica; a rank keeps optimizer state for its parts only. Buckets,
// because messages of 4 to 16 MiB are fastest and a bucket can travel while others are computed.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/communicator.h"

namespace bdlm {

struct FlatRange {
  std::int64_t begin = 0, count = 0;
  bool operator==(const FlatRange&) const = default;
};

/// Who owns which elements of a flat range. Pure; parts may be empty, nothing need divide.
class ShardLayout {
 public:
  /// Buckets of bucket_elements; none crosses one of the ascending `cuts`.
  ShardLayout(FlatRange range, int ranks, std::int64_t bucket_elements,
              const std::vector<std::int64_t>& cuts = {});
  FlatRange range() const { return range_; }
  std::int64_t size() const { return range_.count; }
  int ranks() const { return ranks_; }
  const std::vector<FlatRange>& buckets() const { return buckets_; }
  /// Buckets of a part of the range that ends with cuts: [first, last).
  std::pair<std::size_t, std::size_t> buckets_of(FlatRange part) const;
  std::vector<std::int64_t> counts(std::size_t bucket) const;  // elements, by rank
  /// The rank's part of every bucket, in flat coordinates, by bucket; ascending.
  std::vector<FlatRange> parts(int rank) const;
  std::int64_t owned(int rank) const;  // elements of all its parts

 private:
  FlatRange range_;
  int ranks_;
  std::vector<FlatRange> buckets_;
};

/// Buckets of about bucket_mib of elements of dtype `sums`, of a size that gives all ranks equal parts
/// of 16 bytes at least: what collectives and vector loads are fastest with. The last bucket before
/// a cut may have any size. One rank has one bucket between cuts: nothing travels.
ShardLayout shard_layout(FlatRange range, int ranks, double bucket_mib, DType sums,
                         const std::vector<std::int64_t>& cuts = {});

/// The sums of the gradients on their way to their owners, bucket by bucket from the end of the range:
/// the backward pass completes them in that order, so that they travel while it goes on.
/// Collective over `replicas`, in the same order on all ranks whatever the calls of from().
class GradientReduction {
 public:
  /// flat [1, size] is the layout's range; owned [1, owned(rank)]: the sums of the own parts, one after
  /// another.
  GradientReduction(Communicator& replicas, const ShardLayout& layout, Tensor flat, Tensor owned);
  /// Elements from flat coordinate `offset` on are final.
  void from(std::int64_t offset);
  /// All are. Device work enqueued afterwards sees the sums.
  void finish();

 private:
  Communicator& replicas_;
  const ShardLayout& layout_;
  Tensor flat_, owned_;
  std::vector<FlatRange> parts_;
  std::vector<std::int64_t> begin_;  // of each part in owned
  std::size_t left_;                 // buckets that have not been started
  std::vector<std::unique_ptr<Transfer>> under_way_;
};

/// Parameters on their way to everybody, bucket by bucket from the start: the next forward pass
/// needs them in that order. flat [1, size], any dtype, is the layout's range and holds the own parts
/// in place. Collective over `replicas`.
class ParameterGathering {
 public:
  ParameterGathering(Communicator& replicas, const ShardLayout& layout, Tensor flat);
  /// Of the next bucket the own part is there.
  void start_next();
  /// Device work enqueued afterwards sees the elements before flat coordinate `end`.
  void until(std::int64_t end);
  void finish() { until(layout_.range().begin + layout_.size()); }

 private:
  Communicator& replicas_;
  const ShardLayout& layout_;
  Tensor flat_;
  std::vector<FlatRange> parts_;
  std::size_t started_ = 0, here_ = 0;  // buckets
  std::vector<std::unique_ptr<Transfer>> under_way_;  // by bucket; null once it is here
};

/// All at once. With one rank owned may be flat itself and nothing is copied.
void reduce_scatter_gradients(Communicator& replicas, const ShardLayout& layout, Tensor flat,
                              Tensor owned);
void all_gather_parameters(Communicator& replicas, const ShardLayout& layout, Tensor flat);

/// Bytes that a rank sends and receives in one call of either, for elements of `element` bytes.
struct ZeroBytes {
  std::int64_t reduce_sent = 0, reduce_received = 0, gather_sent = 0, gather_received = 0;
};
ZeroBytes zero_bytes(const ShardLayout& layout, int rank, std::int64_t gradient_element,
                     std::int64_t parameter_element);

}  // namespace bdlm
