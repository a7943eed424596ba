// SPDX-License-Identifier: Apache-2.0
// The groups of a mesh hold the ranks that the rank order says.
#include <catch2/catch.hpp>
#include <numeric>

#include "parallel/mesh.h"

using namespace bdlm;

namespace {

std::vector<std::int64_t> members(Communicator& group, int ranks, int me) {
  std::vector<std::int64_t> found(static_cast<std::size_t>(ranks), 0);
  found[static_cast<std::size_t>(me)] = 1 + group.rank();  // 0: not in the group
  group.all_reduce(std::span<std::int64_t>(found), Reduce::sum);
  return found;
}

}  // namespace

TEST_CASE("a mesh groups consecutive ranks for csbp and strided ones for data", "[test_mesh]") {
  auto world = mpi_world(std::make_shared<Traffic>());
  const int me = world->rank(), ranks = world->size();
  for (int csbp = 1; csbp <= ranks; ++csbp) {
    if (ranks % csbp != 0) continue;
    Mesh mesh(fit_mesh({.csbp = csbp}, ranks), std::make_shared<Traffic>());
    CHECK(mesh.sizes().data == ranks / csbp);
    CHECK(mesh.speaks() == (me == 0));
    const auto in_csbp = members(mesh.csbp(), ranks, me);
    const auto in_data = members(mesh.data(), ranks, me);
    const auto in_replicas = members(mesh.holders(Holders::sharded), ranks, me);
    for (int r = 0; r < ranks; ++r) {
      const auto i = static_cast<std::size_t>(r);
      CHECK(in_csbp[i] == (r / csbp == me / csbp ? 1 + r % csbp : 0));
      CHECK(in_data[i] == (r % csbp == me % csbp ? 1 + r / csbp : 0));
      CHECK(in_replicas[i] == 1 + r);
    }
  }
}

TEST_CASE("a mesh of another size than the world is refused on every rank", "[test_mesh]") {
  auto world = mpi_world(std::make_shared<Traffic>());
  CHECK_THROWS_WITH(Mesh({.data = world->size() + 1}, std::make_shared<Traffic>()),
                    Catch::Contains("in a world of"));
}
