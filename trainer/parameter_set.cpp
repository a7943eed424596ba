// SPDX-License-Identifier: Apache-2.0
#include "trainer/parameter_set.h"

#include <utility>

#include "kernels/error.h"

namespace bdlm {

int zero_level_of(Holders set, int level, int ranks) {
  return ranks == 1 || set == Holders::tied ? 1 : level;
}

ShardLayout shards_of(const ParameterLayout& layout, Holders set, int ranks,
                      const ZeroOptions& options) {
  const auto index = static_cast<std::size_t>(set);
  std::vector<std::int64_t> cuts;
  if (zero_level_of(set, options.level, ranks) > 1)
    for (const auto& unit : layout.units) cuts.push_back(unit[index].begin);
  return shard_layout(layout.sets[index], ranks, options.bucket_mib,
                      accumulate_type(options.compute), cuts);
}

ParameterSet::ParameterSet(Device& device, Communicator& group, const ParameterLayout& layout,
                           Holders set, const ZeroOptions& options)
    : device_(device),
      group_(group),
      layout_(layout),
      index_(static_cast<std::size_t>(set)),
      level_(zero_level_of(set, options.level, group.size())),
      compute_(options.compute),
      shards_(shards_of(layout, set, group.size(), options)),
      parts_(shards_.parts(group.rank())),
      across_stages_(set == Holders::tied),
      gathered_(layout.units.size()),
      adding_(layout.units.size()) {
  for (const FlatRange& part : parts_) {
    begin_.push_back(owned_);
    owned_ += part.count;
  }
  const DType sums = accumulate_type(compute_);
  weights_ = device.allocate(1, level_ == 3 ? owned_ : shards_.size(), compute_, Memory::parameters);
  if (!options.train) return;
  if (level_ == 1) {
    gradients_ = device.allocate(1, shards_.size(), sums, Memory::gradients);
    device.zero(gradients_);
  }
  if (group.size() > 1) reduced_ = device.allocate(1, owned_, sums, Memory::gradients);
}

Tensor ParameterSet::own_weights(std::size_t bucket) const {
  if (level_ == 3) return own(weights_, bucket);
  return weights_.tensor().slice_cols(parts_[bucket].begin - shards_.range().begin,
                                      parts_[bucket].count);
}

Tensor ParameterSet::own_gradients(std::size_t bucket) const {
  return own(reduced_ ? reduced_ : gradients_, bucket);
}

void ParameterSet::prefetch_weights(std::size_t unit) {
  UnitMemory& u = gathered_[unit];
  const FlatRange part = part_of(unit);
  if (level_ < 3 || u.memory || part.count == 0) return;
  u.memory = device_.allocate(1, part.count, compute_, Memory::parameters);
  const auto [first, last] = shards_.buckets_of(part);
  for (std::size_t b = first; b < last; ++b) {
    const FlatRange& bucket = shards_.buckets()[b];
    u.arriving.push_back(group_.start_all_gather(
        own(weights_, b), shards_.counts(b),
        u.memory.tensor().slice_cols(bucket.begin - part.begin, bucket.count),
        Purpose::parameter_gather));
  }
}

void ParameterSet::need_weights(std::size_t unit) {
  if (level_ < 3) {
    const FlatRange part = part_of(unit);
    if (gathering_) gathering_->until(part.begin + part.count);
    return;
  }
  prefetch_weights(unit);
  UnitMemory& u = gathered_[unit];
  ++u.users;
  for (const auto& transfer : u.arriving) transfer->wait_all();
  u.arriving.clear();
}

void ParameterSet::check_inside(std::size_t unit, FlatRange range) const {
  const FlatRange part = part_of(unit);
  require(range.begin >= part.begin && range.begin + range.count <= part.begin + part.count,
          "elements {} to {} of the {} set are not in unit {}", range.begin,
          range.begin + range.count, name_of(static_cast<Holders>(index_)), unit);
}

Tensor ParameterSet::weights(std::size_t unit, FlatRange range) const {
  check_inside(unit, range);
  if (level_ < 3)
    return weights_.tensor().slice_cols(range.begin - shards_.range().begin, range.count);
  return gathered_[unit].memory.tensor().slice_cols(range.begin - part_of(unit).begin, range.count);
}

void ParameterSet::release(std::size_t unit) {
  UnitMemory& u = gathered_[unit];
  if (level_ == 3 && --u.users == 0) u.memory.reset();
}

void ParameterSet::need_gradients(std::size_t unit) {
  const FlatRange part = part_of(unit);
  UnitMemory& u = adding_[unit];
  if (level_ == 1 || u.memory || part.count == 0) return;
  u.memory = device_.allocate(1, part.count, accumulate_type(compute_), Memory::gradients);
  device_.zero(u.memory);
}

Tensor ParameterSet::gradients(std::size_t unit, FlatRange range) const {
  check_inside(unit, range);
  if (level_ == 1)
    return gradients_.tensor().slice_cols(range.begin - shards_.range().begin, range.count);
  return adding_[unit].memory.tensor().slice_cols(range.begin - part_of(unit).begin, range.count);
}

void ParameterSet::gradients_added(std::size_t unit, bool final) {
  const FlatRange part = part_of(unit);
  if (group_.size() == 1 || part.count == 0) return;
  if (level_ == 1) {
    // Stages reach their passes' ends in different orders.
    if (!final || across_stages_) return;
    if (!reduction_) reduction_.emplace(group_, shards_, gradients_, reduced_);
    reduction_->from(part.begin);
    return;
  }
  settle();
  summed_unit_ = std::move(adding_[unit].memory);
  const auto [first, last] = shards_.buckets_of(part);
  for (std::size_t b = first; b < last; ++b) {
    const FlatRange& bucket = shards_.buckets()[b];
    Sum& sum = sums_.emplace_back();
    sum.bucket = b;
    sum.sum = device_.allocate(1, parts_[b].count, accumulate_type(compute_), Memory::gradients);
    sum.transfer = group_.start_reduce_scatter(
        summed_unit_.tensor().slice_cols(bucket.begin - part.begin, bucket.count), shards_.counts(b),
        sum.sum, Purpose::gradient_reduce);
  }
}

void ParameterSet::settle() {
  for (const Sum& sum : sums_) {
    sum.transfer->wait_all();
    device_.add(sum.sum, own(reduced_, sum.bucket));
  }
  sums_.clear();
  summed_unit_.reset();
}

void ParameterSet::zero_gradients() {
  if (gradients_) device_.zero(gradients_);
  if (level_ > 1) device_.zero(reduced_);
}

void ParameterSet::finish_reduction() {
  if (group_.size() == 1) return;
  if (level_ > 1) {
    settle();
    return;
  }
  if (!reduction_) reduction_.emplace(group_, shards_, gradients_, reduced_);
  reduction_->finish();
  reduction_.reset();
}

void ParameterSet::begin_gathering() {
  finish_gathering();
  if (level_ < 3 && group_.size() > 1) gathering_.emplace(group_, shards_, weights_);
}

void ParameterSet::start_gather_next() {
  if (gathering_) gathering_->start_next();
}

void ParameterSet::finish_gathering() {
  if (gathering_) gathering_->finish();
  gathering_.reset();
}

}  // namespace bdlm
