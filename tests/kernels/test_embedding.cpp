// SPDX-License-Identifier: Apache-2.0
// Token embedding.
#include "tests/kernels/devices.h"

using namespace bdlm;
using namespace bdlm::test;

namespace {

std::vector<std::int32_t> some_ids(std::int64_t count, std::int32_t vocab) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  std::mt19937 generator(7);
  // Few distinct ids: repeats are what the backward is about.
  for (auto& id : ids) id = static_cast<std::int32_t>(generator() % 11) * (vocab - 1) / 10;
  return ids;
}

}  // namespace

TEST_CASE("embedding forward and backward") {
  on_all([&]<class T>(Device& device) {
    using A = accumulate_t<T>;
    const DType type = dtype_of<T>();
    for (const Shape& s : device_shapes()) {
      const std::int32_t vocab = 53;
      const auto ids = some_ids(s.rows, vocab);
      const auto table = TestMatrix(type, vocab, s.cols).random(1);
      TestMatrix y(type, s.rows, s.cols, s.padding);
      const auto list = upload(device, ids);
      device.embedding_forward(list.data, table, y);
      bool same = y.padding_untouched();
      for (std::int64_t i = 0; i < s.rows; ++i) {
        for (std::int64_t j = 0; j < s.cols; ++j) {
          same = same && y.get(i, j) == table.get(ids[std::size_t(i)], j);
        }
      }
      CHECK(same);

      TestMatrix dtable = TestMatrix(accumulate_type(type), vocab, s.cols, s.padding).random(2);
      auto truth = dtable.values<Truth>();
      auto naive = dtable.values<A>();
      for (std::int64_t i = 0; i < s.rows; ++i) {
        for (std::int64_t j = 0; j < s.cols; ++j) {
          truth(ids[std::size_t(i)], j) += static_cast<Truth>(y.get(i, j));
          naive(ids[std::size_t(i)], j) += static_cast<A>(y.get(i, j));
        }
      }
      device.embedding_backward(ids, y, dtable);
      check_close("embedding_backward", dtable, truth, naive);
      // In the order of the rows whatever the threads: exactly the plain loop.
      bool exact = true;
      for (std::int64_t i = 0; i < vocab; ++i) {
        for (std::int64_t j = 0; j < s.cols; ++j) {
          exact = exact && dtable.get(i, j) == static_cast<double>(naive(i, j));
        }
      }
      CHECK(exact);
    }
  });
}

TEST_CASE("embedding refuses an id outside the table", "[cpu]") {
  const auto device = make_cpu_device(1);
  TestMatrix table(DType::f32, 10, 4), y(DType::f32, 2, 4);
  const std::int32_t ids[] = {3, 10};
  CHECK_THROWS_WITH(device->embedding_forward(ids, table, y), Catch::Contains("10"));
  CHECK_THROWS_AS(device->embedding_backward(ids, y, table), Error);
}
