// SPDX-License-Identifier: Apache-2.0
// What the attention tests share: interval patterns, fused key-value sources, and the accuracy
// rule.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>

#include "kernels/reference/attention.h"
#include "tests/kernels/matrices.h"

namespace bdlm::test {

struct IntervalSet {
  std::int64_t keys = 0;
  std::vector<Interval> visible;  // of each query row
};

/// Clean rows of the documents, then their corrupted rows, as block diffusion training sees them
/// (block-causal). The first set is the clean source, the second the corrupted one.
inline std::vector<IntervalSet> block_diffusion(const std::vector<int>& documents, int block,
                                                int window = 0) {
  int total = 0;
  for (const int length : documents) total += length;
  IntervalSet clean{total, {}}, corrupted{total, {}};
  for (const bool is_corrupted : {false, true}) {
    int start = 0;
    for (const int length : documents) {
      for (int i = 0; i < length; ++i) {
        const int first = i / block * block, last = std::min(first + block, length);
        const int lo = window > 0 ? std::max(0, i - window + 1) : 0;
        clean.visible.push_back({start + lo, start + (is_corrupted ? first : last)});
        corrupted.visible.push_back(
            is_corrupted ? Interval{start + std::max(lo, first), start + last} : Interval{0, 0});
      }
      start += length;
    }
  }
  return {clean, corrupted};
}

/// Anything goes: about one interval in four is empty, some of these with lo > hi.
inline IntervalSet random_intervals(std::int64_t rows, int keys, unsigned seed) {
  IntervalSet set{keys, {}};
  std::mt19937 generator(seed);
  std::uniform_int_distribution<int> position(0, keys);
  for (std::int64_t i = 0; i < rows; ++i) {
    Interval interval{position(generator), position(generator)};
    if (i % 2 == 0 && interval.lo > interval.hi) std::swap(interval.lo, interval.hi);
    set.visible.push_back(interval);
  }
  return set;
}

/// The same keys cut at `cuts`: what one rank after another holds.
inline std::vector<IntervalSet> split(const IntervalSet& whole, std::vector<std::int32_t> cuts) {
  cuts.push_back(static_cast<std::int32_t>(whole.keys));
  std::vector<IntervalSet> parts;
  std::int32_t first = 0;
  for (const std::int32_t last : cuts) {
    IntervalSet part{last - first, {}};
    for (const Interval seen : whole.visible) {
      part.visible.push_back(
          {std::clamp(seen.lo, first, last) - first, std::clamp(seen.hi, first, last) - first});
    }
    parts.push_back(std::move(part));
    first = last;
  }
  return parts;
}

/// Inputs of one call. Keys and values of a source are the two halves of one buffer.
struct AttentionCase {
  AttentionShape shape;
  DType dtype;
  std::int64_t rows;
  std::vector<IntervalSet> sets;
  TestMatrix q, dout;
  std::vector<TestMatrix> fused;  // [keys, 2 * kv_heads * head_dim]
  mutable std::vector<IntervalList> lists;  // in use by a device: it outlives this case

  AttentionCase(DType type, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                std::vector<IntervalSet> interval_sets)
      : shape{heads, kv_heads, head_dim, 1.3 / std::sqrt(static_cast<double>(head_dim))},
        dtype(type),
        rows(static_cast<std::int64_t>(interval_sets.at(0).visible.size())),
        sets(std::move(interval_sets)),
        q(TestMatrix(type, rows, heads * head_dim, 3).random(1)),
        dout(TestMatrix(type, rows, heads * head_dim, 5).random(2)) {
    for (std::size_t s = 0; s < sets.size(); ++s) {
      fused.push_back(
          TestMatrix(type, sets[s].keys, 2 * key_cols(), 1).random(static_cast<unsigned>(10 + s)));
    }
  }

  std::int64_t key_cols() const { return shape.kv_heads * shape.head_dim; }

  KeySource source(Device& device, std::size_t s) const {
    lists.push_back(device.upload_intervals(sets[s].visible, sets[s].keys));
    const Tensor& both = fused[s].tensor();
    return {both.slice_cols(0, key_cols()), both.slice_cols(key_cols(), key_cols()),
            lists.back().rows.data, lists.back().notes.get()};
  }
  std::vector<KeySource> sources(Device& device) const {
    std::vector<KeySource> all;
    for (std::size_t s = 0; s < sets.size(); ++s) all.push_back(source(device, s));
    return all;
  }

  template <class A>
  reference::KeySource<A> plain_source(std::size_t s) const {
    reference::KeySource<A> plain{
        {sets[s].keys, key_cols()}, {sets[s].keys, key_cols()}, sets[s].visible};
    for (std::int64_t k = 0; k < sets[s].keys; ++k) {
      for (std::int64_t c = 0; c < key_cols(); ++c) {
        plain.key(k, c) = static_cast<A>(fused[s].get(k, c));
        plain.value(k, c) = static_cast<A>(fused[s].get(k, key_cols() + c));
      }
    }
    return plain;
  }
  template <class A>
  std::vector<reference::KeySource<A>> plain_sources() const {
    std::vector<reference::KeySource<A>> all;
    for (std::size_t s = 0; s < sets.size(); ++s) all.push_back(plain_source<A>(s));
    return all;
  }
};

/// Heads, key heads, channels and intervals that between them reach every path: panels and tiles
/// that are not full, groups of 1 to 8, channels that do not fill vectors, both bfloat16 kernels.
template <class Body>
void on_attention_cases(DType type, Body&& body) {
  body(AttentionCase(type, 2, 2, 64, block_diffusion({37, 1, 70, 5}, 32)));
  body(AttentionCase(type, 4, 2, 40, block_diffusion({75, 31}, 8)));
  body(AttentionCase(type, 8, 1, 12, block_diffusion({45, 30}, 4, 17)));
  body(AttentionCase(type, 3, 1, 8, {random_intervals(131, 143, 3)}));
  body(AttentionCase(type, 6, 3, 80, {random_intervals(40, 300, 4), random_intervals(40, 33, 5)}));
  body(AttentionCase(type, 1, 1, 128, {IntervalSet{150, {{3, 148}, {4, 148}}}}));
  body(AttentionCase(type, 1, 1, 16, {IntervalSet{1, {{0, 1}}}}));
}

/// The error in the 2-norm is at most `factor` roundings of the inputs' dtype. Products round their
/// operands to that dtype, so that this also bounds results that are wider. Inputs are of size 1:
/// so are the terms of a sum that cancels.
inline void check_norm(const char* what, const TestMatrix& result,
                       const reference::Matrix<Truth>& truth, DType rounding, double factor) {
  const Tensor& t = result.tensor();
  long double square = 0, size = 0;
  for (std::int64_t i = 0; i < t.rows; ++i) {
    for (std::int64_t j = 0; j < t.cols; ++j) {
      if (result.get(i, j) == static_cast<double>(truth(i, j))) continue;  // also -infinity
      const long double error = result.get(i, j) - truth(i, j);
      square += error * error;
    }
  }
  for (const Truth value : truth.values) size += std::isfinite(value) ? value * value + 1 : 0;
  INFO(what << " " << name_of(t.dtype) << " " << t.rows << " x " << t.cols << " from "
            << name_of(rounding));
  CHECK(result.padding_untouched());
  CHECK(static_cast<double>(std::sqrt(square)) <=
        factor * unit_roundoff(rounding) * static_cast<double>(std::sqrt(size)));
}

}  // namespace bdlm::test
