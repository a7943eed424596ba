// SPDX-License-Identifier: Apache-2.0
// Saved by n ranks, loaded in any partition; a failure on one rank is everybody's Error.
#include <fstream>

#include "tests/trainer/test_checkpoint_state.h"

using namespace bdlm;
using namespace bdlm::test;
namespace fs = std::filesystem;
using Catch::Contains;

namespace {

struct World {
  World()
      : mesh(fit_mesh({}, mpi_world(std::make_shared<Traffic>())->size()),
             std::make_shared<Traffic>()) {
    std::string path;
    if (mesh.speaks()) {
      folder = std::make_unique<Folder>();
      path = folder->path.string();
    }
    mesh.world().broadcast(path, 0);
    run_folder = path;
  }
  ~World() { mesh.world().barrier(); }  // before rank 0 removes the folder

  std::string save(const ParameterLayout& layout, const StateShare& share, std::int64_t step,
                   std::int64_t keep = 0) {
    return error_of([&] {
      save_checkpoint(mesh.world(), mesh.sizes(), run_folder, {step, 2 * step, step, 0, 7},
                      "run: {}\n", layout, layout, share, keep);
    });
  }
  int ranks() { return mesh.world().size(); }

  std::unique_ptr<Folder> folder;
  Mesh mesh;
  std::string run_folder;
};

}  // namespace

TEST_CASE("n ranks save, any partition loads", "[test_checkpoint]") {
  World world;
  const ParameterLayout layout = odd_layout();
  std::int64_t step = 0;
  for (std::int64_t bucket : {5, 40, 1000}) {
    for (DType type : {DType::f32, DType::f64}) {
      ++step;
      const ShardLayout shards({0, layout.size}, world.ranks(), bucket);
      State state(shards.parts(world.mesh.rank()), type);
      state.fill(layout, static_cast<double>(step));
      REQUIRE(world.save(layout, state.share, step, 2).empty());
      const CheckpointInfo info = open_checkpoint(world.run_folder);
      REQUIRE(info.progress.step == step);
      REQUIRE(info.mesh.ranks() == world.ranks());
      for (int ranks : {1, 2, 3, 5}) {
        const ShardLayout others({0, layout.size}, ranks, 11);
        for (int rank = 0; rank < ranks; ++rank) {
          State got(others.parts(rank), DType::f32);
          got.fill(layout, -1);
          load_checkpoint(info, layout, layout, true, got.share);
          REQUIRE(got.wrong(layout, static_cast<double>(step)) == 0);
        }
      }
      REQUIRE(verify_checkpoint(info).empty());
      world.mesh.world().barrier();
    }
  }
  CHECK(list_checkpoints(world.run_folder).size() == 2);
}

TEST_CASE("ranks that own nothing write no file", "[test_checkpoint]") {
  World world;
  const ParameterLayout layout = odd_layout();
  const bool last = world.mesh.rank() == world.ranks() - 1;
  State state(last ? std::vector<FlatRange>{{0, layout.size}} : std::vector<FlatRange>{},
              DType::f32);
  state.fill(layout);
  REQUIRE(world.save(layout, state.share, 1).empty());
  const CheckpointInfo info = open_checkpoint(world.run_folder);
  std::int64_t shards = 0;
  for (const auto& entry : fs::directory_iterator(info.folder)) {
    shards += entry.path().extension() == ".h5";
  }
  CHECK(shards == 1);
  State got({{0, layout.size}}, DType::f32);
  load_checkpoint(info, layout, layout, true, got.share);
  CHECK(got.wrong(layout) == 0);
}

TEST_CASE("one rank's failure is everybody's, and old checkpoints stay", "[test_checkpoint]") {
  World world;
  const ParameterLayout layout = odd_layout();
  const ShardLayout shards({0, layout.size}, world.ranks(), 20);
  State state(shards.parts(world.mesh.rank()), DType::f32);
  state.fill(layout);
  REQUIRE(world.save(layout, state.share, 1).empty());
  for (int bad = 0; bad < world.ranks(); ++bad) {
    StateShare share = state.share;
    if (world.mesh.rank() >= bad) share.parts.push_back({layout.size, 4});  // out of range
    CHECK_THAT(world.save(layout, share, 2, 1), Contains(fmt::format("rank {} on ", bad)));
    CHECK(list_checkpoints(world.run_folder).size() == 1);
  }
  // two ranks that own the same elements, and nobody that owns them, are found when it is loaded
  REQUIRE(world.save(layout, state.share, 2, 1).empty());
  CHECK(verify_checkpoint(open_checkpoint(world.run_folder)).empty());
  CHECK(list_checkpoints(world.run_folder).front().progress.step == 2);
}
