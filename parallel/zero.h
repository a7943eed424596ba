// SPDX-License-Identifier: Apache-2.0
// ZeRO (Rajbhandari et al., arXiv 1910.02054): the flat parameter range is cut into buckets and
// every bucket into one part a replica; a rank keeps optimizer state for its parts only. Buckets,
// because messages of 4 to 16 MiB are fastest and a bucket can travel while others are computed.
#pragma once

#include <cstdint>
#include <vector>

#include "parallel/communicator.h"

namespace bdlm {

struct FlatRange {
  std::int64_t begin = 0, count = 0;
  bool operator==(const FlatRange&) const = default;
};

/// Who owns which elements of a flat range of `size`. Pure; parts may be empty, nothing need
/// divide.
class ShardLayout {
 public:
  ShardLayout(std::int64_t size, int ranks, std::int64_t bucket_elements);
  std::int64_t size() const { return size_; }
  int ranks() const { return ranks_; }
  const std::vector<FlatRange>& buckets() const { return buckets_; }
  std::vector<std::int64_t> counts(std::size_t bucket) const;  // elements, by rank
  /// The rank's part of every bucket, in flat coordinates, by bucket; ascending.
  std::vector<FlatRange> parts(int rank) const;
  std::int64_t owned(int rank) const;  // elements of all its parts

 private:
  std::int64_t size_;
  int ranks_;
  std::vector<FlatRange> buckets_;
};

/// Collective over `replicas`. owned [1, owned(rank)]: the sums of the own parts, one after
/// another. With one rank owned may be flat itself and nothing is copied.
void reduce_scatter_gradients(Communicator& replicas, const ShardLayout& layout, Tensor flat,
                              Tensor owned);

/// Collective over `replicas`. flat [1, size], any dtype, holds the own parts in place and receives
/// all others.
void all_gather_parameters(Communicator& replicas, const ShardLayout& layout, Tensor flat);

/// Bytes that a rank sends and receives in one call of either, for elements of `element` bytes.
struct ZeroBytes {
  std::int64_t reduce_sent = 0, reduce_received = 0, gather_sent = 0, gather_received = 0;
};
ZeroBytes zero_bytes(const ShardLayout& layout, int rank, std::int64_t gradient_element,
                     std::int64_t parameter_element);

}  // namespace bdlm
