// SPDX-License-Identifier: Apache-2.0
// Buckets, parts, and the two collectives over them.
#include "parallel/zero.h"

#include <algorithm>

#include "kernels/error.h"

namespace bdlm {
namespace {

/// The rank's part of a bucket. Remainders fall to different ranks in turn, not to the first ones.
FlatRange part_of(const FlatRange& bucket, int rank, int ranks) {
  const std::int64_t begin = bucket.count * rank / ranks;
  const std::int64_t end = bucket.count * (rank + 1) / ranks;
  return {bucket.begin + begin, end - begin};
}

}  // namespace

ShardLayout::ShardLayout(std::int64_t size, int ranks, std::int64_t bucket_elements)
    : size_(size), ranks_(ranks) {
  require(size >= 0 && ranks >= 1 && bucket_elements >= 1,
          "cannot shard {} elements over {} ranks in buckets of {}", size, ranks, bucket_elements);
  for (std::int64_t begin = 0; begin < size; begin += bucket_elements) {
    buckets_.push_back({begin, std::min(bucket_elements, size - begin)});
  }
}

std::vector<std::int64_t> ShardLayout::counts(std::size_t bucket) const {
  std::vector<std::int64_t> elements;
  for (int r = 0; r < ranks_; ++r)
    elements.push_back(part_of(buckets_.at(bucket), r, ranks_).count);
  return elements;
}

std::vector<FlatRange> ShardLayout::parts(int rank) const {
  std::vector<FlatRange> own;
  for (const FlatRange& bucket : buckets_) own.push_back(part_of(bucket, rank, ranks_));
  return own;
}

std::int64_t ShardLayout::owned(int rank) const {
  std::int64_t elements = 0;
  for (const FlatRange& bucket : buckets_) elements += part_of(bucket, rank, ranks_).count;
  return elements;
}

void reduce_scatter_gradients(Communicator& replicas, const ShardLayout& layout, Tensor flat,
                              Tensor owned) {
  require(layout.ranks() == replicas.size() && flat.size() == layout.size() &&
              owned.size() == layout.owned(replicas.rank()),
          "gradients of {} elements ({} owned) do not match a layout of {} over {} ranks",
          flat.size(), owned.size(), layout.size(), layout.ranks());
  if (owned.data == flat.data && layout.ranks() == 1) return;
  const auto parts = layout.parts(replicas.rank());
  std::int64_t at = 0;
  for (std::size_t b = 0; b < parts.size(); ++b) {
    const FlatRange& bucket = layout.buckets()[b];
    replicas.reduce_scatter(flat.slice_cols(bucket.begin, bucket.count), layout.counts(b),
                            owned.slice_cols(at, parts[b].count), Purpose::gradient_reduce);
    at += parts[b].count;
  }
}

void all_gather_parameters(Communicator& replicas, const ShardLayout& layout, Tensor flat) {
  require(layout.ranks() == replicas.size() && flat.size() == layout.size(),
          "parameters of {} elements do not match a layout of {} over {} ranks", flat.size(),
          layout.size(), layout.ranks());
  const auto parts = layout.parts(replicas.rank());
  for (std::size_t b = 0; b < parts.size(); ++b) {
    const FlatRange& bucket = layout.buckets()[b];
    replicas.all_gather(flat.slice_cols(parts[b].begin, parts[b].count), layout.counts(b),
                        flat.slice_cols(bucket.begin, bucket.count), Purpose::parameter_gather);
  }
}

ZeroBytes zero_bytes(const ShardLayout& layout, int rank, std::int64_t gradient_element,
                     std::int64_t parameter_element) {
  const std::int64_t mine = layout.owned(rank);
  const std::int64_t rest = layout.size() - mine;
  const std::int64_t copies = mine * (layout.ranks() - 1);
  return {.reduce_sent = rest * gradient_element,
          .reduce_received = copies * gradient_element,
          .gather_sent = copies * parameter_element,
          .gather_received = rest * parameter_element};
}

}  // namespace bdlm
