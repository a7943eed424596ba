// SPDX-License-Identifier: Apache-2.0
// The slow truth for tests of plans: visibility of every pair of rows, straight from the
// definition, and random micro-batches with awkward sizes. Shares no idea with the implementation.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "parallel/plan.h"

namespace bdlm::test {

/// A micro-batch and a model, as plans see them.
struct Case {
  std::vector<std::int64_t> documents;
  std::int64_t views = 1, block_size = 1;
  bool causal = false;
  std::vector<std::uint8_t> predicts;
  LayerShapes model;

  std::int64_t tokens() const {
    std::int64_t sum = 0;
    for (const std::int64_t length : documents) sum += length;
    return sum;
  }
  std::int64_t rows() const { return (1 + views) * tokens(); }
  BatchShape batch() const { return {documents, views, block_size, causal, predicts}; }
};

class Dense {
 public:
  explicit Dense(const Case& c) : case_(c) {
    for (std::size_t d = 0; d < c.documents.size(); ++d) {
      for (std::int64_t i = 0; i < c.documents[d]; ++i) {
        document_.push_back(static_cast<int>(d));
        position_.push_back(i);
      }
    }
  }

  std::int64_t position(std::int64_t row) const { return position_[at(row)]; }

  bool visible(std::int64_t query, std::int64_t key, std::int64_t window) const {
    const std::int64_t T = case_.tokens(), B = case_.block_size;
    const std::int64_t q = position(query), k = position(key);
    if (document_[at(query)] != document_[at(key)]) return false;
    if (window > 0 && q - k >= window) return false;
    const std::int64_t query_copy = query / T, key_copy = key / T;
    if (query_copy == 0 && key_copy == 0) return case_.causal ? k <= q : k / B <= q / B;
    if (key_copy == 0) return k / B < q / B;
    return query_copy == key_copy && k / B == q / B;
  }

  std::vector<std::int64_t> keys_of(std::int64_t query, std::int64_t window) const {
    std::vector<std::int64_t> keys;
    for (std::int64_t key = 0; key < case_.rows(); ++key) {
      if (visible(query, key, window)) keys.push_back(key);
    }
    return keys;
  }

  /// By reachability, top down: [layer][row], everything elided.
  std::vector<std::vector<std::uint8_t>> reader_sets() const {
    std::vector<std::uint8_t> need = case_.predicts;
    std::vector<std::vector<std::uint8_t>> sets(case_.model.windows.size());
    for (std::size_t layer = sets.size(); layer-- > 0;) {
      sets[layer] = need;
      std::vector<std::uint8_t> below = need;
      for (std::int64_t row = 0; row < case_.rows(); ++row) {
        if (!need[static_cast<std::size_t>(row)]) continue;
        for (const std::int64_t key : keys_of(row, case_.model.windows[layer])) {
          below[static_cast<std::size_t>(key)] = 1;
        }
      }
      need = below;
    }
    return sets;
  }

 private:
  std::size_t at(std::int64_t row) const { return static_cast<std::size_t>(row % case_.tokens()); }

  const Case& case_;
  std::vector<int> document_;
  std::vector<std::int64_t> position_;
};

/// Short documents, one-token ones among them, blocks that divide nothing, all kinds of attention,
/// few or many targets, sometimes none.
inline Case random_case(unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&random](int lo, int hi) {  // in [lo, hi]; the same on every library
    return lo + static_cast<int>(random() % static_cast<unsigned>(hi - lo + 1));
  };
  Case c;
  for (int d = draw(1, 4); d > 0; --d) c.documents.push_back(draw(0, 3) == 0 ? 1 : draw(1, 17));
  c.views = draw(1, 2);
  c.block_size = draw(1, 7);
  c.causal = draw(0, 1) == 1;
  const int targets = draw(0, 4) * draw(0, 25);  // percent
  const bool clean_too = draw(0, 2) == 0;
  c.predicts.assign(static_cast<std::size_t>(c.rows()), 0);
  for (std::int64_t row = clean_too ? 0 : c.tokens(); row < c.rows(); ++row) {
    c.predicts[static_cast<std::size_t>(row)] = draw(1, 100) <= targets;
  }
  constexpr int windows[] = {0, 0, 1, 2, 5, 100};
  for (int l = draw(1, 4); l > 0; --l) c.model.windows.push_back(windows[draw(0, 5)]);
  c.model.kv_width = 6;
  c.model.row_cost = 40;
  return c;
}

inline std::string describe(const Case& c) {
  return fmt::format("documents {}, block {}, views {}, {}, windows {}",
                     fmt::join(c.documents, " "), c.block_size, c.views,
                     c.causal ? "causal" : "block-causal", fmt::join(c.model.windows, " "));
}

}  // namespace bdlm::test
