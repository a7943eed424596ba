// SPDX-License-Identifier: Apache-2.0
// Boxes of a row-major matrix. A range of the flat parameters cuts a tensor at any element; what is
// stored are boxes, because they mean the same in every topology.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/zero.h"

namespace bdlm {

struct Box {
  std::int64_t row = 0, col = 0, rows = 0, cols = 0;
  std::int64_t size() const { return rows * cols; }
  bool operator==(const Box&) const = default;
};

/// Elements [begin, begin + count) of a matrix with `cols` columns as at most three boxes, in the
/// elements' order: the rest of the first row, full rows, the beginning of the last row.
std::vector<Box> boxes_of(FlatRange range, std::int64_t cols);

/// What both cover; of size 0 when they do not meet.
Box intersect(const Box& a, const Box& b);

/// Elements that follow one another both where they are and where they go.
struct Run {
  std::int64_t source = 0, target = 0, count = 0;
};

/// Appends the runs that carry what both boxes cover from a buffer that holds `from`, row-major,
/// from its element `source` on, to one that holds `to` from its element `target` on.
void append_runs(const Box& from, std::int64_t source, const Box& to, std::int64_t target,
                 std::vector<Run>& runs);

/// Empty when the boxes cover a [rows, cols] matrix exactly: each element once, nothing outside.
/// Otherwise says what is wrong.
std::string coverage_error(const std::vector<Box>& boxes, std::int64_t rows, std::int64_t cols);

}  // namespace bdlm
