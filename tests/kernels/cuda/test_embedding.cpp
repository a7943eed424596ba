// SPDX-License-Identifier: Apache-2.0
// Gradient of the token embedding.
#include <algorithm>
#include <numeric>

#include "tests/kernels/cuda/launches.h"

using namespace bdlm;
using namespace bdlm::test;
using cuda::view;

namespace {

/// Positions sorted by id, and where each id's run begins.
struct Runs {
  std::vector<std::int32_t> order, group;

  explicit Runs(const std::vector<std::int32_t>& ids) : order(ids.size()) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return ids[std::size_t(a)] < ids[std::size_t(b)];
    });
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || ids[std::size_t(order[i])] != ids[std::size_t(order[i - 1])]) {
        group.push_back(static_cast<std::int32_t>(i));
      }
    }
    group.push_back(static_cast<std::int32_t>(order.size()));
  }
};

/// Many ids once or twice, and two of them, as the mask token, in long runs.
std::vector<std::int32_t> uneven_ids(std::int64_t count, std::int32_t vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::mt19937 generator(7);
  for (auto& id : ids) {
    const auto draw = generator() % 4;
    id = draw == 0 ? 3 : draw == 1 ? vocab - 1 : static_cast<std::int32_t>(generator()) % vocab;
    id = std::max(id, -id);
  }
  return ids;
}

}  // namespace

TEST_CASE("cuda embedding: gradients of equal ids are added") {
  on_types([]<class T>() {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>(), sums = accumulate_type(type);
    std::vector<Shape> sizes = all_shapes();
    sizes.push_back({900, 264, 8});
    for (const Shape& s : sizes) {
      const std::int32_t vocab = 353;
      const auto ids = uneven_ids(s.rows, vocab);
      const Runs runs(ids);
      std::vector<std::int64_t> counts(vocab);
      for (const std::int32_t id : ids) ++counts[std::size_t(id)];
      const auto dy = TestMatrix(type, s.rows, s.cols, s.padding).random(1);
      const auto start = TestMatrix(sums, vocab, s.cols).random(2);
      auto truth = start.values<Truth>();
      auto naive = start.values<A>();
      for (std::int64_t i = 0; i < s.rows; ++i) {
        for (std::int64_t j = 0; j < s.cols; ++j) {
          truth(ids[std::size_t(i)], j) += static_cast<Truth>(dy.get(i, j));
          naive(ids[std::size_t(i)], j) += static_cast<A>(dy.get(i, j));
        }
      }
      TestMatrix dtable = TestMatrix(sums, vocab, s.cols, s.padding).from(start.values<double>());
      cuda::embedding_backward<T>(nullptr, ids.data(), runs.order.data(), runs.group.data(),
                                  static_cast<std::int64_t>(runs.group.size()) - 1,
                                  view<const T>(dy), view<A>(dtable));
      wait();
      check_close("dtable", dtable, truth, naive);
      // Short runs in the order of the rows: exactly the plain loop.
      bool exact = true;
      for (std::int64_t i = 0; i < vocab; ++i) {
        for (std::int64_t j = 0; j < s.cols && counts[std::size_t(i)] <= 64; ++j) {
          exact = exact && dtable.get(i, j) == static_cast<double>(naive(i, j));
        }
      }
      CHECK(exact);
    }
  });
}
