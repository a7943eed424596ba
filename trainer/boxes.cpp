// SPDX-License-Identifier: Apache-2.0
// Cutting flat ranges into boxes, and copying between boxes.
#include "trainer/boxes.h"

#include <algorithm>

#include "kernels/error.h"

namespace bdlm {

std::vector<Box> boxes_of(FlatRange range, std::int64_t cols) {
  std::vector<Box> boxes;
  std::int64_t row = cols > 0 ? range.begin / cols : 0;
  std::int64_t col = cols > 0 ? range.begin % cols : 0;
  std::int64_t left = cols > 0 ? range.count : 0;
  while (left > 0) {
    const bool full = col == 0 && left >= cols;
    const std::int64_t rows = full ? left / cols : 1;
    const std::int64_t width = full ? cols : std::min(left, cols - col);
    boxes.push_back({row, col, rows, width});
    left -= rows * width;
    row += rows;
    col = 0;
  }
  return boxes;
}

Box intersect(const Box& a, const Box& b) {
  const std::int64_t row = std::max(a.row, b.row), col = std::max(a.col, b.col);
  const std::int64_t rows = std::min(a.row + a.rows, b.row + b.rows) - row;
  const std::int64_t cols = std::min(a.col + a.cols, b.col + b.cols) - col;
  if (rows <= 0 || cols <= 0) return {};
  return {row, col, rows, cols};
}

void append_runs(const Box& from, std::int64_t source, const Box& to, std::int64_t target,
                 std::vector<Run>& runs) {
  const Box both = intersect(from, to);
  if (both.size() == 0) return;
  source += (both.row - from.row) * from.cols + both.col - from.col;
  target += (both.row - to.row) * to.cols + both.col - to.col;
  if (both.rows == 1 || (both.cols == from.cols && both.cols == to.cols)) {
    runs.push_back({source, target, both.size()});
    return;
  }
  for (std::int64_t r = 0; r < both.rows; ++r) {
    runs.push_back({source + r * from.cols, target + r * to.cols, both.cols});
  }
}

std::string coverage_error(const std::vector<Box>& boxes, std::int64_t rows, std::int64_t cols) {
  const Box whole{0, 0, rows, cols};
  std::vector<Run> runs;
  for (const Box& box : boxes) {
    if (box.size() <= 0 || intersect(box, whole) != box) {
      return fmt::format("box [{}, {}] + [{}, {}] is not a part of [{}, {}]", box.row, box.col,
                         box.rows, box.cols, rows, cols);
    }
    append_runs(box, 0, whole, 0, runs);
  }
  std::sort(runs.begin(), runs.end(),
            [](const Run& a, const Run& b) { return a.target < b.target; });
  std::int64_t next = 0;
  for (const Run& run : runs) {
    if (run.target < next) return fmt::format("element {} is stored twice", run.target);
    if (run.target > next) break;
    next += run.count;
  }
  if (next == rows * cols) return {};
  return fmt::format("element {} of {} is not stored", next, rows * cols);
}

}  // namespace bdlm
