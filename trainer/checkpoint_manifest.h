// SPDX-License-Identifier: Apache-2.0
// manifest.json: everything about a checkpoint but the values. A folder is a checkpoint when it has
// one, so it is written last.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/boxes.h"
#include "trainer/checkpoint.h"

namespace bdlm {

/// Of the build; written down, never compared.
const char* library_version();

/// On disk by name, for ever: docs/checkpoints.md.
enum class StateKind : std::uint8_t { master, first, second };
inline constexpr std::array state_kinds{StateKind::master, StateKind::first, StateKind::second};
const char* name_of(StateKind kind);

struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> shape;  // [cols] of a vector, [rows, cols] of a matrix
  std::int64_t rows() const { return shape.size() == 1 ? 1 : shape.front(); }
  std::int64_t cols() const { return shape.back(); }
};

struct StoredDataset {
  StateKind kind = StateKind::master;
  std::string tensor;
  std::vector<Box> boxes;
  std::uint64_t hash = 0;  // XXH64, seed 0, of the values as stored
  std::string name() const { return std::string(name_of(kind)) + "/" + tensor; }
  std::int64_t count() const;
};

struct StoredFile {
  std::string name;  // "shard_00000.h5"; empty: a rank that owned nothing
  std::int64_t bytes = 0;
  DType dtype = DType::f32;
  std::vector<StoredDataset> datasets;
};

struct Manifest {
  std::string version;  // of the program that wrote it
  Progress progress;
  MeshSizes mesh;
  std::string run_file;
  std::vector<StoredTensor> tensors;
  std::vector<StoredFile> files;
};

/// How a rank tells rank 0 of its file.
std::string to_text(const StoredFile& file);
StoredFile stored_file_from(const std::string& text);

/// Of the logical tensor, as stored.
std::vector<std::int64_t> shape_of(const Parameter& tensor);
std::vector<StoredTensor> tensors_of(const ParameterLayout& layout);

std::string manifest_path(const std::string& folder);
void write_manifest(const std::string& folder, const Manifest& manifest);

/// Error for a manifest that is missing, altered or of an unknown format. The shards are not looked
/// at.
Manifest read_manifest(const std::string& folder);

/// A shard's presence and size against the manifest; empty when they agree.
std::string shard_error(const std::string& folder, const StoredFile& file);
/// Error for the first shard that is missing or of another size.
void check_shards(const std::string& folder, const Manifest& manifest);

}  // namespace bdlm
