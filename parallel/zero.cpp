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

ShardLayout::ShardLayout(FlatRange range, int ranks, std::int64_t bucket_elements,
                         const std::vector<std::int64_t>& cuts)
    : range_(range), ranks_(ranks) {
  require(range.count >= 0 && ranks >= 1 && bucket_elements >= 1,
          "cannot shard {} elements over {} ranks in buckets of {}", range.count, ranks,
          bucket_elements);
  auto cut = cuts.begin();
  const std::int64_t end = range.begin + range.count;
  for (std::int64_t begin = range.begin; begin < end;) {
    while (cut != cuts.end() && *cut <= begin) ++cut;
    const std::int64_t limit = cut == cuts.end() ? end : std::min(end, *cut);
    const std::int64_t count = std::min(bucket_elements, limit - begin);
    buckets_.push_back({begin, count});
    begin += count;
  }
}

std::pair<std::size_t, std::size_t> ShardLayout::buckets_of(FlatRange part) const {
  const auto at = [&](std::int64_t offset) {
    return static_cast<std::size_t>(
        std::ranges::lower_bound(buckets_, offset, {}, &FlatRange::begin) - buckets_.begin());
  };
  return {at(part.begin), at(part.begin + part.count)};
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

ShardLayout shard_layout(FlatRange range, int ranks, double bucket_mib, DType sums,
                         const std::vector<std::int64_t>& cuts) {
  if (ranks == 1) return {range, 1, std::max<std::int64_t>(1, range.count), cuts};
  const std::int64_t step = std::int64_t{8} * ranks;
  const auto elements = static_cast<std::int64_t>(bucket_mib * 1048576) /
                        static_cast<std::int64_t>(size_of(sums));
  return {range, ranks, std::max(step, elements / step * step), cuts};
}

GradientReduction::GradientReduction(Communicator& replicas, const ShardLayout& layout, Tensor flat,
                                     Tensor owned)
    : replicas_(replicas),
      layout_(layout),
      flat_(flat),
      owned_(owned),
      parts_(layout.parts(replicas.rank())),
      left_(layout.buckets().size()) {
  require(layout.ranks() == replicas.size() && flat.size() == layout.size() &&
              owned.size() == layout.owned(replicas.rank()),
          "gradients of {} elements ({} owned) do not match a layout of {} over {} ranks",
          flat.size(), owned.size(), layout.size(), layout.ranks());
  std::int64_t at = 0;
  for (const FlatRange& part : parts_) {
    begin_.push_back(at);
    at += part.count;
  }
}

void GradientReduction::from(std::int64_t offset) {
  while (left_ > 0 && layout_.buckets()[left_ - 1].begin >= offset) {
    const std::size_t b = --left_;
    const FlatRange& bucket = layout_.buckets()[b];
    under_way_.push_back(replicas_.start_reduce_scatter(
        flat_.slice_cols(bucket.begin - layout_.range().begin, bucket.count), layout_.counts(b),
        owned_.slice_cols(begin_[b], parts_[b].count), Purpose::gradient_reduce));
  }
}

void GradientReduction::finish() {
  from(layout_.range().begin);
  for (const auto& transfer : under_way_) transfer->wait_all();
  under_way_.clear();
}

ParameterGathering::ParameterGathering(Communicator& replicas, const ShardLayout& layout,
                                       Tensor flat)
    : replicas_(replicas), layout_(layout), flat_(flat), parts_(layout.parts(replicas.rank())) {
  require(layout.ranks() == replicas.size() && flat.size() == layout.size(),
          "parameters of {} elements do not match a layout of {} over {} ranks", flat.size(),
          layout.size(), layout.ranks());
}

void ParameterGathering::start_next() {
  const std::size_t b = started_++;
  const FlatRange& bucket = layout_.buckets().at(b);
  under_way_.push_back(replicas_.start_all_gather(
      flat_.slice_cols(parts_[b].begin - layout_.range().begin, parts_[b].count),
      layout_.counts(b), flat_.slice_cols(bucket.begin - layout_.range().begin, bucket.count),
      Purpose::parameter_gather));
}

void ParameterGathering::until(std::int64_t end) {
  for (; here_ < started_ && layout_.buckets()[here_].begin < end; ++here_) {
    under_way_[here_]->wait_all();
    under_way_[here_].reset();
  }
}

void reduce_scatter_gradients(Communicator& replicas, const ShardLayout& layout, Tensor flat,
                              Tensor owned) {
  if (owned.data == flat.data && layout.ranks() == 1) return;
  GradientReduction(replicas, layout, flat, owned).finish();
}

void all_gather_parameters(Communicator& replicas, const ShardLayout& layout, Tensor flat) {
  ParameterGathering gathering(replicas, layout, flat);
  for (std::size_t b = 0; b < layout.buckets().size(); ++b) gathering.start_next();
  gathering.finish();
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
