// SPDX-License-Identifier: Apache-2.0
// Sharded sums and gathered parameters against the whole, on sizes that do not divide.
#include <catch2/catch.hpp>

#include "parallel/zero.h"
#include "tests/mpi/place.h"

using namespace bdlm;

TEST_CASE("gradients are summed into parts and parameters come back whole", "[test_zero]") {
  const std::int64_t size = GENERATE(0, 1, 5, 97, 1000);
  const std::int64_t bucket = GENERATE(1, 7, 64, 4096);
  auto traffic = std::make_shared<Traffic>();
  auto world = test::device_world(traffic);
  const int me = world->rank(), ranks = world->size();
  const ShardLayout layout({0, size}, ranks, bucket);
  const auto parts = layout.parts(me);

  test::SharedVector<float> gradients(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    gradients[static_cast<std::size_t>(i)] = static_cast<float>((i % 101) * (me + 1));
  }
  test::SharedVector<float> owned(static_cast<std::size_t>(layout.owned(me)), -1);
  const auto own = static_cast<std::int64_t>(owned.size());
  reduce_scatter_gradients(*world, layout, {gradients.data(), 1, size, size, DType::f32},
                           {owned.data(), 1, own, own, DType::f32});
  test::device()->synchronize();
  std::size_t at = 0;
  for (const FlatRange& part : parts) {
    for (std::int64_t i = part.begin; i < part.begin + part.count; ++i) {
      CHECK(owned[at++] == static_cast<float>((i % 101) * ranks * (ranks + 1) / 2));
    }
  }
  CHECK(at == owned.size());

  test::SharedVector<bfloat16> parameters(static_cast<std::size_t>(size), bfloat16(-1.0f));
  for (const FlatRange& part : parts) {
    for (std::int64_t i = part.begin; i < part.begin + part.count; ++i) {
      parameters[static_cast<std::size_t>(i)] = bfloat16(static_cast<float>(i % 127));
    }
  }
  all_gather_parameters(*world, layout, {parameters.data(), 1, size, size, DType::bf16});
  test::device()->synchronize();
  for (std::int64_t i = 0; i < size; ++i) {
    CHECK(static_cast<float>(parameters[static_cast<std::size_t>(i)]) ==
          static_cast<float>(i % 127));
  }

  const ZeroBytes predicted = zero_bytes(layout, me, 4, 2);
  CHECK(traffic->at(Purpose::gradient_reduce).sent == predicted.reduce_sent);
  CHECK(traffic->at(Purpose::gradient_reduce).received == predicted.reduce_received);
  CHECK(traffic->at(Purpose::parameter_gather).sent == predicted.gather_sent);
  CHECK(traffic->at(Purpose::parameter_gather).received == predicted.gather_received);
}

TEST_CASE("one rank owns everything in place", "[test_zero]") {
  auto world = test::device_world(std::make_shared<Traffic>());
  if (world->size() > 1) return;
  test::SharedVector<float> data{1, 2, 3};
  const Tensor flat{data.data(), 1, 3, 3, DType::f32};
  reduce_scatter_gradients(*world, ShardLayout({0, 3}, 1, 2), flat, flat);
  all_gather_parameters(*world, ShardLayout({0, 3}, 1, 2), flat);
  test::device()->synchronize();
  CHECK(data == test::SharedVector<float>{1, 2, 3});
}
