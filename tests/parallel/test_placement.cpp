// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <set>

#include "parallel/mesh_groups.h"
#include "parallel/placement.h"

using namespace bdlm;
using Groups = std::vector<std::vector<int>>;

namespace {

/// `a_node` ranks a node, all of the same name, as hosts in network namespaces have.
std::vector<RankPlace> places(int ranks, int a_node) {
  std::vector<RankPlace> out;
  for (int r = 0; r < ranks; ++r) out.push_back({r / a_node * a_node, "box", "cpu, 1 thread"});
  return out;
}

}  // namespace

TEST_CASE("groups of ranks on each axis") {
  const MeshSizes sizes{.tensor = 2, .csbp = 2, .data = 1, .pipeline = 2, .expert = 2};
  CHECK(groups_along(Axis::tensor, sizes) == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_along(Axis::csbp, sizes) == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(groups_along(Axis::row, sizes) == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(groups_along(Axis::data, sizes).size() == 8);
  CHECK(pipeline_columns(sizes) == Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}});
  CHECK(groups_along(Axis::expert, sizes) == Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}});
  CHECK(groups_among(Holders::experts, sizes) == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(groups_among(Holders::sharded, sizes) == Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}});
  CHECK(groups_among(Holders::replicated, sizes) == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(groups_among(Holders::keys, sizes, 2) == Groups{{0, 1, 2, 3}, {4, 5, 6, 7}});
  CHECK(groups_among(Holders::tied, sizes) == Groups{{0, 2, 4, 6}, {1, 3, 5, 7}});
}

TEST_CASE("groups of every axis hold each rank once") {
  const MeshSizes sizes{.tensor = 2, .csbp = 3, .data = 4, .pipeline = 3, .expert = 8};
  const auto check = [](const Groups& groups) {
    std::multiset<int> seen;
    for (const auto& group : groups) seen.insert(group.begin(), group.end());
    CHECK(seen.size() == 72);
    CHECK(std::set<int>(seen.begin(), seen.end()).size() == 72);
  };
  for (Axis axis : {Axis::tensor, Axis::csbp, Axis::row, Axis::data, Axis::expert})
    check(groups_along(axis, sizes));
  for (Holders set : {Holders::sharded, Holders::keys, Holders::replicated, Holders::experts,
                      Holders::tied})
    check(groups_among(set, sizes, 2));
  check(pipeline_columns(sizes));
  CHECK(groups_along(Axis::expert, sizes)[3] ==
        std::vector<int>{24, 25, 26, 27, 28, 29, 30, 31});
}

TEST_CASE("ranks in short") {
  CHECK(rank_ranges(std::vector<int>{0, 1, 2, 5, 7, 8}) == "0-2, 5, 7-8");
  CHECK(rank_ranges({}).empty());
}

TEST_CASE("the placement is told by node and axis") {
  auto at = places(8, 4);
  at[5].device = "cuda:1 GPU";
  CHECK(describe_placement(at, {.tensor = 2, .csbp = 2, .data = 2}) ==
        "placement of 8 ranks on 2 nodes\n"
        "  node  host                 ranks            device\n"
        "  0     box                  0-3              cpu, 1 thread\n"
        "  1     box                  4                cpu, 1 thread\n"
        "                             5                cuda:1 GPU\n"
        "                             6-7              cpu, 1 thread\n"
        "  tensor 2: 4 groups, inside nodes\n"
        "  csbp 2: 4 groups, inside nodes\n"
        "  data 2: 4 groups, across nodes\n");
  CHECK_THROWS_WITH(describe_placement(at, {.csbp = 2}), Catch::Contains("places of 8 ranks"));
}

TEST_CASE("groups that cross nodes in part are counted") {
  const auto at = places(12, 4);
  CHECK_THAT(describe_placement(at, {.csbp = 3, .data = 4}),
             Catch::Contains("csbp 3: 4 groups, 2 of them across nodes") &&
                 Catch::Contains("data 4: 3 groups, across nodes"));
}

TEST_CASE("a tensor or csbp group across nodes is warned of") {
  CHECK(placement_warning(places(4, 2), {.csbp = 2, .data = 2}).empty());
  CHECK(placement_warning(places(4, 2), {.data = 4}).empty());
  CHECK(placement_warning(places(4, 2), {.pipeline = 4}).empty());
  CHECK(placement_warning(places(4, 2), {.csbp = 4}) ==
        "1 of 1 csbp groups, as ranks 0-3, cross nodes: every layer's keys and values go over the "
        "network; parallel.csbp: 2 stays inside a node");
  CHECK(placement_warning(places(12, 4), {.csbp = 3, .data = 4}) ==
        "2 of 4 csbp groups, as ranks 3-5, cross nodes: every layer's keys and values go over the "
        "network; parallel.csbp: 2 stays inside a node");
  CHECK_THAT(placement_warning(places(4, 1), {.tensor = 2, .csbp = 2}),
             Catch::Contains("tensor groups") && Catch::Contains("parallel.tensor: 1 stays"));
  // Ranks dealt to the nodes in turn.
  auto round_robin = places(4, 2);
  for (int r = 0; r < 4; ++r) round_robin[static_cast<std::size_t>(r)].node = r % 2;
  CHECK_THAT(placement_warning(round_robin, {.csbp = 2, .data = 2}),
             Catch::Contains("2 of 2 csbp groups, as ranks 0-1,"));
}
