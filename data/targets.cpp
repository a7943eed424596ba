// SPDX-License-Identifier: Apache-2.0
// From corrupted rows to what a forward pass is given: which row predicts which token, and several
// packed rows joined into one micro-batch.
#include <algorithm>

#include "data/row.h"
#include "kernels/error.h"

namespace bdlm {

std::vector<Target> targets_of(const CorruptedRow& row, const Objective& objective) {
  const std::int64_t n = row.clean.size();
  std::vector<Target> targets;
  // `shift`: how far ahead of its row a token stands. No row predicts across a document's start.
  const auto add_copy = [&](std::int64_t copy, const std::vector<double>& weights,
                            std::int64_t shift, TargetKind kind) {
    std::int64_t begin = 0;
    for (std::int64_t length : row.clean.documents) {
      for (std::int64_t i = begin + shift; i < begin + length; ++i) {
        if (weights[i] != 0)
          targets.push_back({copy * n + i - shift, row.clean.tokens[i], weights[i], kind});
      }
      begin += length;
    }
  };
  if (!row.ar_weights.empty()) add_copy(0, row.ar_weights, 1, TargetKind::autoregressive);
  for (std::size_t view = 0; view < row.views.size(); ++view)
    add_copy(static_cast<std::int64_t>(view) + 1, row.weights[view], objective.target_shift,
             TargetKind::diffusion);
  return targets;
}

MicroBatch join(std::span<const CorruptedRow> rows, const Objective& objective,
                std::int64_t first_view, std::int64_t view_count) {
  MicroBatch batch;
  batch.views = view_count;
  for (const CorruptedRow& row : rows) {
    require(first_view >= 0 && view_count >= 0 &&
                first_view + view_count <= static_cast<std::int64_t>(row.views.size()),
            "packed row {} has {} views, asked for {} from view {} on", row.clean.index,
            row.views.size(), view_count, first_view);
    batch.tokens += row.clean.size();
    batch.rows.push_back(row.clean.index);
    batch.row_tokens.push_back(row.clean.size());
    batch.documents.insert(batch.documents.end(), row.clean.documents.begin(),
                           row.clean.documents.end());
    if (first_view == 0) batch.counts += count(row, objective);
  }
  batch.ids.resize((1 + view_count) * batch.tokens);
  std::int64_t offset = 0;
  for (const CorruptedRow& row : rows) {
    const std::int64_t n = row.clean.size();
    for (std::int64_t copy = 0; copy <= view_count; ++copy) {
      const auto& tokens = copy == 0 ? row.clean.tokens : row.views[first_view + copy - 1];
      std::copy(tokens.begin(), tokens.end(), batch.ids.begin() + copy * batch.tokens + offset);
    }
    for (Target target : targets_of(row, objective)) {
      const std::int64_t copy = target.row / n, position = target.row % n;
      const std::int64_t joined = copy == 0 ? 0 : copy - first_view;
      const bool in_part = copy == 0 ? first_view == 0 : joined >= 1 && joined <= view_count;
      if (!in_part) continue;
      target.row = joined * batch.tokens + offset + position;
      batch.targets.push_back(target);
    }
    offset += n;
  }
  std::sort(batch.targets.begin(), batch.targets.end(),
            [](const Target& a, const Target& b) { return a.row < b.row; });
  return batch;
}

}  // namespace bdlm
