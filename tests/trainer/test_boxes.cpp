// SPDX-License-Identifier: Apache-2.0
// Boxes against element by element enumeration, over all ranges of small matrices.
#include <algorithm>
#include <catch2/catch.hpp>

#include "trainer/boxes.h"

using namespace bdlm;

namespace {

std::vector<std::int64_t> elements_of(const Box& box, std::int64_t cols) {
  std::vector<std::int64_t> elements;
  for (std::int64_t r = 0; r < box.rows; ++r) {
    for (std::int64_t c = 0; c < box.cols; ++c) {
      elements.push_back((box.row + r) * cols + box.col + c);
    }
  }
  return elements;
}

}  // namespace

TEST_CASE("a flat range is at most three boxes, in its order") {
  for (std::int64_t cols : {1, 2, 3, 7}) {
    const std::int64_t size = 4 * cols;
    for (std::int64_t begin = 0; begin <= size; ++begin) {
      for (std::int64_t count = 0; begin + count <= size; ++count) {
        const std::vector<Box> boxes = boxes_of({begin, count}, cols);
        REQUIRE(boxes.size() <= 3);
        std::vector<std::int64_t> got, truth;
        for (const Box& box : boxes) {
          for (std::int64_t element : elements_of(box, cols)) got.push_back(element);
        }
        for (std::int64_t i = 0; i < count; ++i) truth.push_back(begin + i);
        REQUIRE(got == truth);
      }
    }
  }
  CHECK(boxes_of({0, 12}, 4) == std::vector<Box>{{0, 0, 3, 4}});
  CHECK(boxes_of({3, 4}, 9) == std::vector<Box>{{0, 3, 1, 4}});  // a vector
  CHECK(boxes_of({0, 0}, 0).empty());
}

TEST_CASE("runs carry what two boxes share") {
  const std::int64_t rows = 4, cols = 5;
  std::vector<Box> all;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) {
      for (std::int64_t h = 1; r + h <= rows; h += 2) {
        for (std::int64_t w = 1; c + w <= cols; w += 2) all.push_back({r, c, h, w});
      }
    }
  }
  for (const Box& from : all) {
    const std::vector<std::int64_t> source = elements_of(from, cols);
    for (const Box& to : all) {
      const std::vector<std::int64_t> wanted = elements_of(to, cols);
      std::vector<std::int64_t> truth(wanted.size() + 3, -1), got = truth;
      std::int64_t shared = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        if (std::count(source.begin(), source.end(), wanted[i]) == 0) continue;
        truth[i + 3] = wanted[i];
        ++shared;
      }
      std::vector<Run> runs;
      append_runs(from, 100, to, 3, runs);
      for (const Run& run : runs) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          got[static_cast<std::size_t>(run.target + i)] =
              source[static_cast<std::size_t>(run.source - 100 + i)];
        }
      }
      REQUIRE(got == truth);
      REQUIRE(intersect(from, to).size() == shared);
    }
  }
}

TEST_CASE("coverage is exact or named") {
  CHECK(coverage_error({{0, 0, 2, 3}}, 2, 3).empty());
  CHECK(coverage_error({{1, 2, 1, 1}, {0, 0, 2, 2}, {0, 2, 1, 1}}, 2, 3).empty());
  CHECK(coverage_error({{0, 0, 1, 3}}, 2, 3) == "element 3 of 6 is not stored");
  CHECK(coverage_error({{0, 1, 2, 2}}, 2, 3) == "element 0 of 6 is not stored");
  CHECK(coverage_error({{0, 0, 2, 3}, {1, 1, 1, 1}}, 2, 3) == "element 4 is stored twice");
  CHECK(coverage_error({{0, 0, 2, 3}, {0, 0, 2, 3}}, 2, 3) == "element 0 is stored twice");
  CHECK(coverage_error({{0, 0, 3, 3}}, 2, 3) == "box [0, 0] + [3, 3] is not a part of [2, 3]");
  CHECK(coverage_error({{0, 0, 2, 3}, {5, 0, 1, 1}}, 2, 3).find("box [5, 0]") == 0);
  CHECK(coverage_error({}, 2, 3) == "element 0 of 6 is not stored");
}
