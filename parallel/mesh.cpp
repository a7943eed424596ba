// SPDX-License-Identifier: Apache-2.0
// Sizes of the axes, a rank's place among them, and the groups.
#include "parallel/mesh.h"

#include <utility>

#include "kernels/error.h"
#include "parallel/mesh_check.h"
#include "parallel/silent_group.h"

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

const char* name_of(Holders holders) {
  switch (holders) {
    case Holders::sharded: return "sharded";
    case Holders::keys: return "keys";
    case Holders::replicated: return "replicated";
    case Holders::experts: return "experts";
    case Holders::tied: return "tied";
  }
  return "unknown";
}

const char* name_of(Axis axis) {
  switch (axis) {
    case Axis::tensor: return "tensor";
    case Axis::csbp: return "csbp";
    case Axis::row: return "row";
    case Axis::data: return "data";
    case Axis::expert: return "expert";
  }
  return "unknown";
}

GroupPlace place_along(Axis axis, const MeshSizes& sizes, int rank) {
  const auto [t, c, d, p] = position_of(sizes, rank);
  const int stage = t + sizes.tensor * (c + sizes.csbp * d);  // its number within the stage
  const int stage_size = sizes.tensor * sizes.csbp * sizes.data;
  switch (axis) {
    case Axis::tensor:
      return {c + sizes.csbp * (d + sizes.data * p), t, sizes.tensor};
    case Axis::csbp:
      return {t + sizes.tensor * (d + sizes.data * p), c, sizes.csbp};
    case Axis::row:
      return {d + sizes.data * p, t + sizes.tensor * c, sizes.tensor * sizes.csbp};
    case Axis::data:
      return {t + sizes.tensor * (c + sizes.csbp * p), d, sizes.data};
    case Axis::expert:
      break;
  }
  return {(stage + stage_size * p) / sizes.expert, stage % sizes.expert, sizes.expert};
}

GroupPlace place_among(Holders holders, const MeshSizes& sizes, int rank, int key_copies) {
  const auto [t, c, d, p] = position_of(sizes, rank);
  const int replicas = sizes.csbp * sizes.data, replica = c + sizes.csbp * d;
  const int stage = t + sizes.tensor * replica, stage_size = sizes.tensor * replicas;
  switch (holders) {
    case Holders::sharded:
      return {t + sizes.tensor * p, replica, replicas};
    case Holders::keys:
      return {t / key_copies + sizes.tensor / key_copies * p, t % key_copies + key_copies * replica,
              key_copies * replicas};
    case Holders::replicated:
      return {p, stage, stage_size};
    case Holders::experts:
      return {stage % sizes.expert + sizes.expert * p, stage / sizes.expert,
              stage_size / sizes.expert};
    case Holders::tied:
      break;
  }
  const bool first = p == 0, last = p == sizes.pipeline - 1;
  if (!first && !last) return {sizes.tensor + rank, 0, 1};
  return {t, replica + (first ? 0 : replicas), first && last ? replicas : 2 * replicas};
}

Holders merged(Holders holders, const MeshSizes& sizes, int key_copies) {
  const Holders stage = sizes.tensor == 1 ? Holders::sharded : Holders::replicated;
  switch (holders) {
    case Holders::sharded: break;
    case Holders::keys: return key_copies == 1 ? Holders::sharded : Holders::keys;
    case Holders::replicated: return stage;
    case Holders::experts: return sizes.expert == 1 ? stage : Holders::experts;
    case Holders::tied: return sizes.pipeline == 1 ? Holders::sharded : Holders::tied;
  }
  return Holders::sharded;
}

template <class MakeGroup>
void Mesh::make_groups(int rank, MakeGroup make) {
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const auto axis = static_cast<Axis>(a);
    axes_[a] = make(place_along(axis, sizes_, rank), name_of(axis));
  }
  for (std::size_t h = 0; h < holder_sets; ++h) {
    const auto set = static_cast<Holders>(h);
    if (merged(set, sizes_, key_copies_) != set) continue;
    holders_[h] = make(place_among(set, sizes_, rank, key_copies_),
                       fmt::format("holders of {} parameters", name_of(set)));
  }
}

Mesh::Mesh(const MeshSizes& sizes, std::shared_ptr<Traffic> traffic, int key_copies)
    : sizes_(sizes), key_copies_(key_copies), world_(mpi_world(traffic)) {
  require(world_->size() == sizes.ranks(), "a mesh of {} ranks was made in a world of {}",
          sizes.ranks(), world_->size());
  position_ = position_of(sizes, world_->rank());
  make_groups(world_->rank(), [&](GroupPlace place, const std::string& name) {
    return mpi_split(place.group, place.rank, traffic, {.name = name});
  });
  make_links(world_->rank(), traffic);
}

namespace {

/// Stage s and s + 1 share edge s of a ring. A rank is in two edges, so they are made in rounds: the
/// even edges, the odd ones, and in a ring of an odd number the last one by itself.
int round_of_edge(int edge, int stages) {
  return stages % 2 == 1 && edge == stages - 1 ? 2 : edge % 2;
}

}  // namespace

void Mesh::make_links(int rank, const std::shared_ptr<Traffic>& traffic) {
  const int stages = sizes_.pipeline, here = position_.pipeline;
  if (stages == 1) return;
  const int column = rank % (sizes_.ranks() / stages);  // ranks of a column differ in the stage only
  const int previous = (here + stages - 1) % stages;
  for (Links& links : links_) {
    const char* flow = &links == links_.data() ? "activations" : "gradients";
    for (int round = 0; round < 3; ++round) {
      const int edge = round_of_edge(here, stages) == round       ? here
                       : round_of_edge(previous, stages) == round ? previous
                                                                  : -1;
      // Who is in no edge of the round is a group alone.
      const int color = edge >= 0 ? column * stages + edge : sizes_.ranks() + rank;
      auto link = mpi_split(color, here == edge ? 0 : 1, traffic,
                            {.name = fmt::format("pipeline {} of edge {}", flow, edge)});
      if (edge == here) links.next = std::move(link);
      else if (edge == previous) links.previous = std::move(link);
    }
  }
}

Mesh Mesh::silent(const MeshSizes& sizes, int rank, int key_copies) {
  Mesh mesh;
  mesh.sizes_ = sizes;
  mesh.position_ = position_of(sizes, rank);
  mesh.key_copies_ = key_copies;
  mesh.world_ = std::make_unique<SilentGroup>(rank, sizes.ranks());
  mesh.make_groups(rank, [](GroupPlace place, const std::string&) {
    return std::make_unique<SilentGroup>(place.rank, place.size);
  });
  for (Links& links : mesh.links_) {
    links.next = std::make_unique<SilentGroup>(0, 2);
    links.previous = std::make_unique<SilentGroup>(1, 2);
  }
  return mesh;
}

void Mesh::wrap_groups(const WrapGroup& wrap) {
  for (std::size_t a = 0; a < axes_.size(); ++a)
    if (static_cast<Axis>(a) != Axis::data)
      axes_[a] = wrap(std::move(axes_[a]), name_of(static_cast<Axis>(a)));
  for (std::size_t h = 0; h < holder_sets; ++h)
    if (holders_[h]) holders_[h] = wrap(std::move(holders_[h]), name_of(static_cast<Holders>(h)));
  if (sizes_.pipeline == 1) return;
  // An edge's two ends must wrap it at the same time: in the rounds of make_links.
  const int stages = sizes_.pipeline, here = position_.pipeline;
  for (Links& links : links_)
    for (int round = 0; round < 3; ++round) {
      if (round_of_edge(here, stages) == round) links.next = wrap(std::move(links.next), "pipeline");
      if (round_of_edge((here + stages - 1) % stages, stages) == round)
        links.previous = wrap(std::move(links.previous), "pipeline");
    }
}

}  // namespace bdlm
