// SPDX-License-Identifier: Apache-2.0
// One packed row, before and after corruption, and the targets that it asks for.
//
// Copies of a row: copy 0 is the clean one, copy 1 + v is corrupted view v. A copy's token is named
// by its row id = copy * T + position in the packed row. Row ids are what plans and losses speak of.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/objective.h"

namespace bdlm {

/// Several whole documents one after another. No fill: a row may be shorter than data.row_tokens.
struct PackedRow {
  std::int64_t index = 0;  // global index of the packed row: what noise is counted by
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> documents;  // lengths, all > 0, sum = tokens.size()
  std::vector<std::uint8_t> eligible;   // a token each: may be corrupted and scored

  std::int64_t size() const { return static_cast<std::int64_t>(tokens.size()); }
};

struct CorruptedRow {
  PackedRow clean;
  std::vector<std::vector<std::int32_t>> views;  // [views][T] tokens of each corrupted copy
  std::vector<std::vector<double>> weights;      // [views][T] of token i as a target; 0: no loss
  std::vector<double> ar_weights;                // [T] likewise for the clean copy; empty: no AR
};

/// What the whole step divides by: sums over rows, replicas and micro-batches, taken before
/// anything is computed (1-objective 1.3). Integers, so that adding them is exact.
struct LossCounts {
  std::int64_t eligible = 0;   // tokens that may be targets (target_shift 1: not a document's first)
  std::int64_t masked = 0;     // scored corrupted tokens, all views
  std::int64_t documents = 0;  // with a possible target
  std::int64_t ar_pairs = 0;   // eligible next-token pairs
  std::int64_t rows = 0;       // packed rows: a mixture's balance term is a mean over them
  LossCounts& operator+=(const LossCounts& other);
};

/// Noise of optimizer step `step` (counts from 1) drawn for the row. Pure: equal on every rank.
CorruptedRow corrupt(const PackedRow& row, const Objective& objective, std::int64_t vocab_size,
                     std::uint64_t seed, std::int64_t step);

LossCounts count(const CorruptedRow& row, const Objective& objective);

enum class TargetKind : std::uint8_t { diffusion, autoregressive };

/// Row `row` predicts `token`. The one place where target_shift is applied.
struct Target {
  std::int64_t row = 0;  // row id: copy * T + position
  std::int32_t token = 0;
  double weight = 0;  // not yet divided by anything, without the terms' loss weights; not 0
  TargetKind kind = TargetKind::diffusion;
};

/// Ascending by row id; at most one a row.
std::vector<Target> targets_of(const CorruptedRow& row, const Objective& objective);

/// Rows processed together in one forward pass: documents of all rows one after another.
/// T is the sum of the rows' tokens; row ids are copy * T + position in the joined row.
struct MicroBatch {
  std::int64_t tokens = 0;  // T
  std::int64_t views = 1;
  std::vector<std::int64_t> documents;
  std::vector<std::int32_t> ids;  // [(1 + views) * T] token of every row id
  std::vector<Target> targets;    // ascending by row id
  LossCounts counts;
  std::vector<std::int64_t> rows;  // indices of the packed rows in it
  std::vector<std::int64_t> row_tokens;  // and their lengths
};

/// `first_view`, `view_count` pick a part of the views: a micro-batch a view is what
/// `elide: second_clean` off means. The AR targets and counts go with view 0.
MicroBatch join(std::span<const CorruptedRow> rows, const Objective& objective,
                std::int64_t first_view, std::int64_t view_count);

}  // namespace bdlm
