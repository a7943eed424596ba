// SPDX-License-Identifier: Apache-2.0
// Buckets and parts cover a flat range once, whatever divides.
#include <algorithm>
#include <catch2/catch.hpp>

#include "parallel/zero.h"

using namespace bdlm;

TEST_CASE("every element has one owner") {
  const std::int64_t size = GENERATE(0, 1, 6, 7, 100, 1003);
  const int ranks = GENERATE(1, 2, 3, 8);
  const std::int64_t bucket = GENERATE(1, 5, 64, 5000);
  const ShardLayout layout({0, size}, ranks, bucket);

  std::int64_t covered = 0;
  for (const FlatRange& b : layout.buckets()) {
    CHECK(b.begin == covered);
    CHECK((b.count > 0 && b.count <= bucket));
    covered += b.count;
  }
  CHECK(covered == size);

  std::vector<int> owners(static_cast<std::size_t>(size), 0);
  std::int64_t owned = 0;
  for (int r = 0; r < ranks; ++r) {
    const auto parts = layout.parts(r);
    REQUIRE(parts.size() == layout.buckets().size());
    for (std::size_t b = 0; b < parts.size(); ++b) {
      CHECK(parts[b].count == layout.counts(b)[static_cast<std::size_t>(r)]);
      const std::int64_t even = layout.buckets()[b].count / ranks;
      CHECK((parts[b].count == even || parts[b].count == even + 1));
      for (std::int64_t i = 0; i < parts[b].count; ++i) {
        ++owners[static_cast<std::size_t>(parts[b].begin + i)];
      }
      if (r > 0) {
        const FlatRange before = layout.parts(r - 1)[b];
        CHECK(parts[b].begin == before.begin + before.count);  // in the order of ranks
      }
    }
    owned += layout.owned(r);
  }
  CHECK(owned == size);
  CHECK(std::all_of(owners.begin(), owners.end(), [](int n) { return n == 1; }));
}

TEST_CASE("bytes sent and received agree over all ranks") {
  const ShardLayout layout({0, 1003}, 5, 64);
  ZeroBytes sum;
  for (int r = 0; r < 5; ++r) {
    const ZeroBytes bytes = zero_bytes(layout, r, 4, 2);
    sum.reduce_sent += bytes.reduce_sent;
    sum.reduce_received += bytes.reduce_received;
    sum.gather_sent += bytes.gather_sent;
    sum.gather_received += bytes.gather_received;
  }
  CHECK(sum.reduce_sent == 4 * 1003 * 4);  // everybody sends all but the own part
  CHECK(sum.reduce_received == sum.reduce_sent);
  CHECK(sum.gather_received == 2 * 1003 * 4);
  CHECK(sum.gather_sent == sum.gather_received);
  const ZeroBytes alone = zero_bytes(ShardLayout({0, 10}, 1, 4), 0, 4, 2);
  CHECK((alone.reduce_sent == 0 && alone.gather_received == 0));
}

TEST_CASE("a layout without ranks or with empty buckets is refused") {
  CHECK_THROWS_AS(ShardLayout({0, 10}, 0, 4), Error);
  CHECK_THROWS_AS(ShardLayout({0, 10}, 2, 0), Error);
  CHECK_THROWS_AS(ShardLayout({0, -1}, 2, 4), Error);
}
