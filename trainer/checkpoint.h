// SPDX-License-Identifier: Apache-2.0
// Checkpoints that any topology can load: HDF5 shards that hold boxes of logical tensors, and a
// manifest that makes them a checkpoint (docs/checkpoints.md has the format).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "parallel/mesh.h"
#include "parallel/zero.h"

namespace bdlm {

/// Where training stands, beside the tensors.
struct Progress {
  std::int64_t step = 0;     // optimizer steps done (skipped ones included)
  std::int64_t rows = 0;     // packed rows consumed
  std::int64_t updates = 0;  // steps that changed the parameters: AdamW's bias correction
  std::int64_t skips = 0;
  std::int64_t tokens = 0;  // clean tokens trained on
};

/// A rank's share of the state, in the host's memory: ascending parts of the flat range of its
/// layout, one after another, in the accumulate dtype (f32 or f64). Layouts may differ between
/// ranks (tensor, pipeline, expert). On saving every element of the model is in exactly one rank's
/// share, those of frozen tensors too; first and second may be empty on all ranks (weights only).
/// Gaps between tensors are not stored: loading sets them to zero.
struct StateShare {
  std::vector<FlatRange> parts;
  Tensor master, first, second;  // [1, sum of the parts' counts]
};

struct CheckpointInfo {
  std::string folder;
  Progress progress;
  std::string run_file;  // resolved YAML
  MeshSizes mesh;
};

/// Collective over the world. Writes run_folder/checkpoints/step_XXXXXXXX; every rank writes its
/// shard, rank 0 the manifest last, then `latest`. A failure on any rank is an Error on all of them
/// that names the rank, file and cause, and leaves older checkpoints as they were. Deletes all but
/// the newest `keep` (0: none).
void save_checkpoint(Mesh& mesh, const std::string& run_folder, const Progress& progress,
                     const std::string& run_file, const ModelConfig& model,
                     const ParameterLayout& layout, const StateShare& share, std::int64_t keep);

/// The same over a communicator alone; `mesh` is only written down. `whole`: all tensors of the
/// model, `layout`: what this rank has of them.
void save_checkpoint(Communicator& world, const MeshSizes& mesh, const std::string& run_folder,
                     const Progress& progress, const std::string& run_file,
                     const ParameterLayout& whole, const ParameterLayout& layout,
                     const StateShare& share, std::int64_t keep);

/// A checkpoint folder, or a run folder or its folder of checkpoints (the newest complete one).
/// Reads the manifest only.
CheckpointInfo open_checkpoint(const std::string& path);

/// Fills the share (any parts, of any topology) from the checkpoint, each byte read checked.
/// moments false: first and second are left alone and may be empty. Throws Error that names a
/// missing, extra, misshaped, truncated or altered tensor and its file; the share is then of no
/// use. Not collective.
void load_checkpoint(const CheckpointInfo& info, const ModelConfig& model,
                     const ParameterLayout& layout, bool moments, const StateShare& share);
void load_checkpoint(const CheckpointInfo& info, const ParameterLayout& whole,
                     const ParameterLayout& layout, bool moments, const StateShare& share);

/// Checkpoints of a run folder, newest first; folders without a manifest are not among them.
std::vector<CheckpointInfo> list_checkpoints(const std::string& run_folder);

/// Whole content against checksums; the text says what is wrong, empty when all is well.
std::string verify_checkpoint(const CheckpointInfo& info);

}  // namespace bdlm
