// SPDX-License-Identifier: Apache-2.0
// Sizes of the axes, a rank's place among them, and the groups.
#include "parallel/mesh.h"

#include <utility>

#include "kernels/error.h"
#include "parallel/mesh_check.h"

namespace bdlm {

MeshSizes fit_mesh(MeshSizes wanted, int world) {
  const auto findings = check_mesh({.sizes = wanted, .world = world});
  require(findings.empty(), "{}", findings.empty() ? "" : findings.front().sentence);
  wanted.data = world / (wanted.tensor * wanted.csbp * wanted.pipeline);
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
