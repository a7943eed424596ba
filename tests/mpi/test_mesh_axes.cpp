// SPDX-License-Identifier: Apache-2.0
// Groups of all axes on a mesh that has every one of them, and links between stages.
#include <catch2/catch.hpp>

#include "parallel/mesh.h"

using namespace bdlm;

TEST_CASE("groups hold the ranks that their places say", "[test_mesh_axes]") {
  auto world = mpi_world(std::make_shared<Traffic>());
  const int ranks = world->size();
  for (int tensor : {1, 2})
    for (int pipeline = 1; pipeline <= ranks; ++pipeline)
      for (int csbp : {1, 2}) {
        if (ranks % (tensor * pipeline * csbp) != 0) continue;
        const int stage = ranks / pipeline;
        const MeshSizes sizes{tensor, csbp, stage / (tensor * csbp), pipeline,
                              stage % 2 == 0 ? 2 : 1};
        Mesh mesh(sizes, std::make_shared<Traffic>(), tensor);
        // Members agree on the group's number, and no other rank has it.
        const auto check = [&](Communicator& group, auto place_of) {
          const GroupPlace mine = place_of(mesh.rank());
          CHECK(group.rank() == mine.rank);
          CHECK(group.size() == mine.size);
          std::int64_t sum = mesh.rank();
          group.all_reduce(std::span(&sum, 1), Reduce::sum);
          std::int64_t wanted = 0;
          for (int r = 0; r < ranks; ++r)
            if (place_of(r).group == mine.group) wanted += r;
          CHECK(sum == wanted);
        };
        for (Axis axis : {Axis::tensor, Axis::csbp, Axis::row, Axis::data, Axis::expert})
          check(mesh.along(axis), [&](int r) { return place_along(axis, sizes, r); });
        for (Holders set : {Holders::sharded, Holders::keys, Holders::replicated, Holders::experts,
                            Holders::tied})
          check(mesh.holders(set), [&](int r) {
            return place_among(merged(set, sizes, tensor), sizes, r, tensor);
          });
      }
}

TEST_CASE("links join a stage to its neighbours", "[test_mesh_axes]") {
  auto world = mpi_world(std::make_shared<Traffic>());
  const int stages = world->size();
  if (stages == 1) return;
  Mesh mesh({.pipeline = stages}, std::make_shared<Traffic>());
  for (Flow flow : {Flow::activations, Flow::gradients}) {
    int next = -1, previous = -1, mine = mesh.rank();
    const auto message = [](int& value, int peer) { return Message{&value, sizeof value, peer}; };
    const Message up = message(mine, 1), down = message(mine, 0);
    const Message from_next = message(next, 1), from_previous = message(previous, 0);
    auto a = mesh.to_next(flow).post({&from_next, 1}, {&up, 1}, Purpose::pipeline_rows);
    auto b = mesh.to_previous(flow).post({&from_previous, 1}, {&down, 1}, Purpose::pipeline_rows);
    a->wait_all();
    b->wait_all();
    CHECK(next == (mesh.rank() + 1) % stages);
    CHECK(previous == (mesh.rank() + stages - 1) % stages);
  }
}
