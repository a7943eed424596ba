// SPDX-License-Identifier: Apache-2.0
// The mesh of ranks: which axis splits what, and the communicators of every axis. Rank order,
// fastest first: tensor, csbp, data, pipeline; experts are folded over tensor x csbp x data.
#pragma once

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

/// Owns the communicators. Making one is collective over the world, in one fixed order of axes.
class Mesh {
 public:
  Mesh(const MeshSizes& sizes, std::shared_ptr<Traffic> traffic);

  /// From now on the groups of the axes carry device memory; the world keeps to the host's.
  /// Collective over the world. To be called before anybody has taken one of them.
  void wrap_groups(const WrapGroup& wrap);

  const MeshSizes& sizes() const { return sizes_; }
  const MeshPosition& position() const { return position_; }
  int rank() const { return world_->rank(); }
  bool speaks() const { return rank() == 0; }

  Communicator& world() { return *world_; }  // also the control communicator: verdicts, signals
  Communicator& csbp() { return *csbp_; }    // ranks that share a packed row
  Communicator& data() { return *data_; }    // ranks with the same place in other replicas
  Communicator& replicas() { return *replicas_; }  // csbp x data: all that hold the same parameters

 private:
  MeshSizes sizes_;
  MeshPosition position_;
  std::unique_ptr<Communicator> world_, csbp_, data_, replicas_;
};

}  // namespace bdlm
