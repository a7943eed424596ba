// SPDX-License-Identifier: Apache-2.0
// Drawing the noise of a packed row, and counting what the loss divides by.
//
// Every random number is Philox(seed, purpose) at the counter (row, step << 32 | index), index
// being a token, a block or a document of the packed row. So it depends on nothing but logical ids.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "data/row.h"
#include "kernels/error.h"
#include "kernels/philox.h"

namespace bdlm {
namespace {

/// One (row, step): what all draws of corrupt() share.
struct Draw {
  std::uint64_t seed, row, step;

  std::uint64_t counter(std::int64_t index) const {
    return step << 32 | static_cast<std::uint64_t>(index);
  }
  double uniform(const Philox& philox, std::int64_t index) const {
    return philox.uniform(row, counter(index));
  }
};

/// A random order of 0 .. n-1 (Fisher and Yates).
std::vector<std::int64_t> permutation(std::int64_t n, const Draw& draw) {
  const Philox philox(draw.seed, RandomPurpose::block_order);
  std::vector<std::int64_t> order(n);
  std::iota(order.begin(), order.end(), std::int64_t{0});
  for (std::int64_t j = n - 1; j > 0; --j)
    std::swap(order[j], order[philox.below(j + 1, draw.row, draw.counter(j))]);
  return order;
}

/// Noise level t of each of the row's `n` parts (blocks, or documents).
std::vector<double> draw_levels(std::int64_t n, const Objective& objective, const Draw& draw) {
  const Philox philox(draw.seed, RandomPurpose::noise_level);
  std::vector<double> levels(n);
  if (objective.level == NoiseLevel::independent) {
    for (std::int64_t j = 0; j < n; ++j) levels[j] = draw.uniform(philox, j);
  } else {
    const double u = draw.uniform(philox, 0);
    const std::vector<std::int64_t> order = permutation(n, draw);
    for (std::int64_t j = 0; j < n; ++j) {
      const double v = u + static_cast<double>(order[j]) / static_cast<double>(n);
      levels[j] = v - std::floor(v);
    }
  }
  const double low = objective.range_low, high = objective.range_high;
  // A range from 0 may draw t = 0, where the weight has no value.
  for (double& t : levels) t = std::max(low + (high - low) * t, 0x1.0p-53);
  return levels;
}

std::int64_t block_count(std::int64_t length, std::int64_t block_size) {
  return (length + block_size - 1) / block_size;
}

/// Noise level t of each token.
std::vector<double> token_levels(const PackedRow& row, const Objective& objective,
                                 const Draw& draw) {
  const bool whole = objective.granularity == Granularity::sequence;
  std::int64_t parts = 0;
  for (std::int64_t length : row.documents)
    parts += whole ? 1 : block_count(length, objective.block_size);
  const std::vector<double> levels = draw_levels(parts, objective, draw);
  std::vector<double> out;
  out.reserve(row.size());
  std::int64_t part = 0;
  for (std::int64_t length : row.documents) {
    const std::int64_t step = whole ? length : objective.block_size;
    for (std::int64_t begin = 0; begin < length; begin += step)
      out.insert(out.end(), std::min(step, length - begin), levels[part++]);
  }
  return out;
}

/// A token of the vocabulary without the mask id, which never occurs in data. May be the token
/// itself.
std::int32_t replacement(const Objective& objective, std::int64_t vocab_size, const Philox& philox,
                         const Draw& draw, std::int64_t token) {
  if (objective.corruption == Corruption::mask)
    return static_cast<std::int32_t>(objective.mask_token_id);
  const std::int64_t mask = objective.mask_token_id;
  const bool skip = mask >= 0 && mask < vocab_size;
  auto id = static_cast<std::int64_t>(
      philox.below(vocab_size - (skip ? 1 : 0), draw.row, draw.counter(token)));
  if (skip && id >= mask) ++id;
  return static_cast<std::int32_t>(id);
}

/// What a token's weights are multiplied by: 1, or for a mean over documents 1 / its document's
/// possible targets, so that the sum over tokens divided by LossCounts::documents is that mean.
std::vector<double> document_scale(const PackedRow& row, const Objective& objective) {
  std::vector<double> scale(row.size(), 1.0);
  if (objective.normalize != Normalize::sequence) return scale;
  std::int64_t begin = 0;
  for (std::int64_t length : row.documents) {
    std::int64_t targets = 0;
    for (std::int64_t i = objective.target_shift; i < length; ++i)
      targets += row.eligible[begin + i] != 0;
    const double each = targets > 0 ? 1.0 / static_cast<double>(targets) : 0.0;
    std::fill_n(scale.begin() + begin, length, each);
    begin += length;
  }
  return scale;
}

void check(const PackedRow& row, const Objective& objective, std::int64_t vocab_size,
           std::int64_t step) {
  const std::int64_t length =
      std::accumulate(row.documents.begin(), row.documents.end(), std::int64_t{0});
  require(length == row.size() && row.eligible.size() == row.tokens.size(),
          "packed row {}: {} tokens, {} in documents and {} loss mask entries do not agree",
          row.index, row.size(), length, row.eligible.size());
  require(row.size() < (std::int64_t{1} << 32) && step >= 0 && step < (std::int64_t{1} << 32),
          "packed row {} at step {}: noise is counted for steps and row lengths below 2^32",
          row.index, step);
  require(objective.corruption == Corruption::uniform ||
              (objective.mask_token_id >= 0 && objective.mask_token_id < vocab_size),
          "objective.mask_token_id {} is outside the vocabulary of {} tokens",
          objective.mask_token_id, vocab_size);
}

}  // namespace

CorruptedRow corrupt(const PackedRow& row, const Objective& objective, std::int64_t vocab_size,
                     std::uint64_t seed, std::int64_t step) {
  check(row, objective, vocab_size, step);
  const std::int64_t n = row.size(), views = objective.view_count();
  const Draw draw{seed, static_cast<std::uint64_t>(row.index), static_cast<std::uint64_t>(step)};
  const Philox choose(seed, RandomPurpose::noise_token);
  const Philox replace(seed, RandomPurpose::replacement_token);
  const std::vector<double> levels = token_levels(row, objective, draw);
  const std::vector<double> scale = document_scale(row, objective);

  CorruptedRow out{row, {}, {}, {}};
  out.views.assign(views, row.tokens);
  out.weights.assign(views, std::vector<double>(n, 0.0));
  if (objective.autoregressive()) out.ar_weights.assign(n, 0.0);

  std::int64_t begin = 0;
  for (std::int64_t length : row.documents) {
    for (std::int64_t i = begin; i < begin + length; ++i) {
      if (row.eligible[i] == 0) continue;
      const NoiseProbability noise = noise_probability(objective.schedule, levels[i]);
      const bool chosen = draw.uniform(choose, i) < noise.p;
      const double weight = (objective.weight == LossWeight::nelbo ? noise.weight : 1.0) * scale[i];
      const bool possible = objective.target_shift == 0 || i > begin;
      for (std::int64_t view = 0; view < views; ++view) {
        const bool corrupted = chosen == (view == 0);  // the second view takes what the first left
        if (corrupted) out.views[view][i] = replacement(objective, vocab_size, replace, draw, i);
        if (possible && (corrupted || objective.scored == Scored::eligible))
          out.weights[view][i] = weight;
      }
      if (objective.autoregressive() && i > begin) {
        // The shared normaliser counts documents under normalize: sequence, the own one pairs.
        out.ar_weights[i] = objective.ar_normalize == ArNormalize::shared ? scale[i] : 1.0;
      }
    }
    begin += length;
  }
  return out;
}

LossCounts count(const CorruptedRow& row, const Objective& objective) {
  LossCounts counts;
  counts.rows = 1;
  std::int64_t begin = 0;
  for (std::int64_t length : row.clean.documents) {
    std::int64_t targets = 0, pairs = 0;
    for (std::int64_t i = 0; i < length; ++i) {
      if (row.clean.eligible[begin + i] == 0) continue;
      targets += i >= objective.target_shift;
      pairs += i >= 1;
    }
    counts.eligible += targets;
    counts.documents += targets > 0;
    if (objective.autoregressive()) counts.ar_pairs += pairs;
    begin += length;
  }
  for (const std::vector<double>& view : row.weights)
    counts.masked += std::count_if(view.begin(), view.end(), [](double w) { return w != 0; });
  return counts;
}

LossCounts& LossCounts::operator+=(const LossCounts& other) {
  eligible += other.eligible;
  masked += other.masked;
  documents += other.documents;
  ar_pairs += other.ar_pairs;
  rows += other.rows;
  return *this;
}

}  // namespace bdlm
