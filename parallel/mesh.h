// SPDX-License-Identifier: Apache-2.0
// The mesh of ranks: which axis splits what, and the communicators of every axis. Rank order,
// fastest first: tensor, csbp, data, pipeline; experts are folded over tensor x csbp x data.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "parallel/communicator.h"
#include "parallel/device_groups.h"

namespace bdlm {

struct MeshSizes {
  int tensor = 1, csbp = 1, data = 1, pipeline = 1, expert = 1;
  int ranks() const { return tensor * csbp * data * pipeline; }
};

/// The sizes with `data` filled in from the world. Throws Error, with the nearest sizes that fit,
/// when the world does not divide into tensor x csbp x pipeline, or the ranks of a stage not into
/// groups of `expert` (parallel/mesh_check.h has the rules, and those of a model).
MeshSizes fit_mesh(MeshSizes wanted, int world);

struct MeshPosition {
  int tensor = 0, csbp = 0, data = 0, pipeline = 0;
};
MeshPosition position_of(const MeshSizes& sizes, int rank);

/// The ranks that hold the same elements of a tensor, and so sum its gradients (2-parallel 2.3). Sets
/// that are the same on a mesh are one: on a mesh of csbp x data only `sharded` is used.
enum class Holders : std::uint8_t {
  sharded,     // csbp x data: what the tensor group cuts
  keys,        // those, and the tensor ranks that share a key/value head
  replicated,  // the whole stage, tensor x csbp x data: norms, router, shared experts
  experts,     // the stage's ranks outside their expert group
  tied,        // csbp x data, on the first and the last stage: an embedding that is the head too
};
inline constexpr std::size_t holder_sets = 5;
const char* name_of(Holders holders);

/// A rank's place in a group: which of the groups of that kind, and where in it.
struct GroupPlace {
  int group = 0, rank = 0, size = 1;
};

/// Groups along the axes. Pure, so that plans and pictures need no communicator.
enum class Axis : std::uint8_t {
  tensor,
  csbp,
  row,  // tensor x csbp: all ranks of a stage that share a packed row
  data,
  expert,
};
const char* name_of(Axis axis);
GroupPlace place_along(Axis axis, const MeshSizes& sizes, int rank);
/// key_copies: tensor ranks that share a key/value head. Stages between the first and the last are
/// alone in the group `tied`.
GroupPlace place_among(Holders holders, const MeshSizes& sizes, int rank, int key_copies);
/// The set that has the same groups on this mesh and stands for this one.
Holders merged(Holders holders, const MeshSizes& sizes, int key_copies);

/// What travels between two stages.
enum class Flow : std::uint8_t { activations, gradients };

/// Owns the communicators. Making one is collective over the world, in one fixed order of axes.
class Mesh {
 public:
  /// key_copies: see place_among.
  Mesh(const MeshSizes& sizes, std::shared_ptr<Traffic> traffic, int key_copies = 1);
  /// The mesh as `rank` sees it with nobody on the other side, to count what it asks for.
  static Mesh silent(const MeshSizes& sizes, int rank, int key_copies);

  /// From now on the groups of the axes carry device memory; the world and data keep to the host's.
  /// Collective over the world. To be called before anybody has taken one of them.
  void wrap_groups(const WrapGroup& wrap);

  const MeshSizes& sizes() const { return sizes_; }
  const MeshPosition& position() const { return position_; }
  int rank() const { return world_->rank(); }
  bool speaks() const { return rank() == 0; }

  Communicator& world() { return *world_; }  // also the control communicator: verdicts, signals
  Communicator& along(Axis axis) { return *axes_[static_cast<std::size_t>(axis)]; }
  Communicator& csbp() { return along(Axis::csbp); }  // ranks that share a packed row
  Communicator& data() { return along(Axis::data); }  // ranks with the same place in other replicas
  Communicator& holders(Holders set) {
    return *holders_[static_cast<std::size_t>(merged(set, sizes_, key_copies_))];
  }

  /// A group of this rank and its neighbour in the pipeline, a link for each direction of each flow:
  /// what travels on one is in one order and in one direction, so that receives may be posted ahead.
  /// The last stage's next is the first (virtual stages).
  /// Only where there are two stages or more.
  Communicator& to_next(Flow flow) { return *links_[static_cast<std::size_t>(flow)].next; }
  Communicator& to_previous(Flow flow) { return *links_[static_cast<std::size_t>(flow)].previous; }

 private:
  Mesh() = default;
  struct Links {
    std::unique_ptr<Communicator> next, previous;
  };
  template <class MakeGroup>
  void make_groups(int rank, MakeGroup make);
  void make_links(int rank, const std::shared_ptr<Traffic>& traffic);

  MeshSizes sizes_;
  MeshPosition position_;
  int key_copies_ = 1;
  std::unique_ptr<Communicator> world_;
  std::array<std::unique_ptr<Communicator>, 5> axes_;
  std::array<std::unique_ptr<Communicator>, holder_sets> holders_;  // null: merged with another
  std::array<Links, 2> links_;
};

}  // namespace bdlm
