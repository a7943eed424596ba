// SPDX-License-Identifier: Apache-2.0
// Sizes of the axes, a rank's place among them, and the groups.
#include "parallel/mesh.h"

#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "kernels/error.h"

namespace bdlm {

MeshSizes fit_mesh(MeshSizes wanted, int world) {
  const std::pair<const char*, int> whole_axes[] = {
      {"tensor", wanted.tensor}, {"pipeline", wanted.pipeline}, {"expert", wanted.expert}};
  for (const auto& [name, size] : whole_axes) {
    require(
        size == 1,
        "parallel.{} is {}, but this version does not split that axis: set it to 1 and give its "
        "ranks to parallel.csbp or to data",
        name, size);
  }
  require(wanted.csbp >= 1, "parallel.csbp is {}: it counts ranks, so it is at least 1",
          wanted.csbp);
  require(world >= 1, "a mesh of {} ranks: at least one is needed", world);
  if (world % wanted.csbp != 0) {
    std::vector<int> fitting;
    for (int size = 1; size <= world; ++size) {
      if (world % size == 0) fitting.push_back(size);
    }
    fail("{} rank{} do{} not divide into csbp {}: use a multiple of {}, or parallel.csbp {}", world,
         world == 1 ? "" : "s", world == 1 ? "es" : "", wanted.csbp, wanted.csbp,
         fitting.size() == 1
             ? "1"
             : fmt::format("{} or {}", fmt::join(fitting.begin(), fitting.end() - 1, ", "),
                           fitting.back()));
  }
  wanted.data = world / wanted.csbp;
  return wanted;
}

MeshPosition position_of(const MeshSizes& sizes, int rank) {
  MeshPosition at;
  at.tensor = rank % sizes.tensor;
  rank /= sizes.tensor;
  at.csbp = rank % sizes.csbp;
  rank /= sizes.csbp;
  at.data = rank % sizes.data;
  at.pipeline = rank / sizes.data;
  return at;
}

Mesh::Mesh(const MeshSizes& sizes, std::shared_ptr<Traffic> traffic)
    : sizes_(sizes), world_(mpi_world(traffic)) {
  require(world_->size() == sizes.ranks(), "a mesh of {} ranks was made in a world of {}",
          sizes.ranks(), world_->size());
  position_ = position_of(sizes, world_->rank());
  // A group is all ranks that differ in its own axes only, so its colour numbers the others.
  const auto [t, c, d, p] = position_;
  csbp_ = mpi_split(t + sizes.tensor * (d + sizes.data * p), c, traffic, {.name = "csbp"});
  data_ = mpi_split(t + sizes.tensor * (c + sizes.csbp * p), d, traffic, {.name = "data"});
  replicas_ = mpi_split(t + sizes.tensor * p, c + sizes.csbp * d, traffic, {.name = "replicas"});
}

void Mesh::wrap_groups(const WrapGroup& wrap) {
  csbp_ = wrap(std::move(csbp_), "csbp");
  data_ = wrap(std::move(data_), "data");
  replicas_ = wrap(std::move(replicas_), "replicas");
}

}  // namespace bdlm
