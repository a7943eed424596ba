// SPDX-License-Identifier: Apache-2.0
// Saving. All is written into step_XXXXXXXX.partial, which nothing lists; one rename makes it a
// checkpoint. After each phase the ranks exchange verdicts, so that none goes on alone.
#include <spdlog/spdlog.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <filesystem>

#include "trainer/checkpoint.h"
#include "trainer/checkpoint_files.h"
#include "trainer/checkpoint_manifest.h"
#include "trainer/checkpoint_pieces.h"
#include "trainer/checkpoint_shard.h"

namespace fs = std::filesystem;

namespace bdlm {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

/// Runs a phase here and learns how it went everywhere: the lowest rank's Error on all ranks.
template <class Phase>
void together(Communicator& world, Phase&& phase) {
  std::string text;
  try {
    phase();
  } catch (const std::exception& error) {
    text = fmt::format("rank {} on {} {}; older checkpoints are as they were", world.rank(),
                       host_name(), error.what());
  }
  std::int64_t failed = text.empty() ? world.size() : world.rank();
  world.all_reduce(std::span(&failed, 1), Reduce::min);
  if (failed == world.size()) return;
  world.broadcast(text, static_cast<int>(failed));
  fail("{}", text);
}

void check_sizes(const StateShare& share) {
  std::int64_t count = 0;
  for (const FlatRange& part : share.parts) count += part.count;
  const bool moments = !share.first.empty() || !share.second.empty();
  require(share.master.size() == count &&
              (!moments || (share.first.size() == count && share.second.size() == count)),
          "share of {} elements with tensors of {}, {} and {}", count, share.master.size(),
          share.first.size(), share.second.size());
}

/// More than the shard will have: HDF5's own part is small beside a mebibyte and a page a dataset.
std::int64_t most_bytes(const StateShare& share, std::size_t tensors) {
  std::int64_t bytes = 1 << 20;
  for (const Tensor* values : {&share.master, &share.first, &share.second})
    bytes += values->size() * static_cast<std::int64_t>(size_of(values->dtype)) +
             4096 * static_cast<std::int64_t>(tensors);
  return bytes;
}

/// Every dataset's values lie in one piece in the share, so they go to disk without a copy.
StoredFile write_shard(const std::string& path, const ParameterLayout& layout,
                       const StateShare& share) {
  check_sizes(share);
  const std::vector<TensorPieces> tensors = pieces_of(layout, share.parts);
  if (tensors.empty()) return {};
  StoredFile file{fs::path(path).filename().string(), 0, share.master.dtype, {}};
  check_file_limit(path, most_bytes(share, tensors.size()));
  ShardWriter writer(path);
  for (StateKind kind : state_kinds) {
    const Tensor& values = kind == StateKind::master  ? share.master
                           : kind == StateKind::first ? share.first
                                                      : share.second;
    if (values.empty()) continue;
    require(values.dtype == file.dtype && values.dtype != DType::bf16,
            "state of {} in a checkpoint of {}", name_of(values.dtype), name_of(file.dtype));
    const std::size_t element = size_of(values.dtype);
    for (const TensorPieces& pieces : tensors) {
      StoredDataset dataset{kind, pieces.tensor->name, {}, 0};
      for (const StoredPiece& piece : pieces.pieces) dataset.boxes.push_back(piece.box);
      const auto* from = static_cast<const std::byte*>(values.data) +
                         static_cast<std::size_t>(pieces.first()) * element;
      dataset.hash = XXH64(from, static_cast<std::size_t>(pieces.count()) * element, 0);
      writer.write(dataset.name(), shape_of(*pieces.tensor), dataset.boxes, values.dtype, from);
      file.datasets.push_back(std::move(dataset));
    }
  }
  writer.close();
  file.bytes = static_cast<std::int64_t>(fs::file_size(path));
  return file;
}

/// Makes the run's folder of checkpoints and in it an empty folder to write into. What a killed run
/// left half-written goes.
void prepare(const fs::path& partial) {
  const fs::path checkpoints = partial.parent_path();
  try {
    if (fs::create_directories(checkpoints)) sync_path(checkpoints.parent_path().string());
    for (const auto& entry : fs::directory_iterator(checkpoints)) {
      if (entry.path().extension() == ".partial") fs::remove_all(entry.path());
    }
    fs::create_directory(partial);
  } catch (const fs::filesystem_error& error) {
    fail("{}", system_message("write", checkpoints.string(), error.code().value()));
  }
}

/// Renamed first, so that a half removed checkpoint is not listed.
void remove_checkpoint(const fs::path& folder) {
  fs::path doomed = folder;
  doomed += ".partial";
  rename_durably(folder.string(), doomed.string());
  fs::remove_all(doomed);
}

/// From here on the new one is the newest. An older save of the same step stays listed under
/// another name until the new one has its place.
void publish(const fs::path& partial, const fs::path& folder) {
  fs::path replaced = folder;
  replaced += ".replaced";
  if (fs::exists(folder)) {
    if (fs::exists(replaced)) remove_checkpoint(replaced);
    rename_durably(folder.string(), replaced.string());
  }
  rename_durably(partial.string(), folder.string());
}

/// The checkpoint is safe by now: a hint that cannot be written, or old ones that cannot be
/// removed, do not fail the run.
void tidy(const std::string& run_folder, const fs::path& newest, std::int64_t keep) {
  try {
    replace_file((newest.parent_path() / "latest").string(), newest.filename().string() + "\n");
    fs::path replaced = newest;
    replaced += ".replaced";
    if (fs::exists(replaced)) remove_checkpoint(replaced);
    if (keep <= 0) return;
    std::int64_t kept = 1;
    for (const CheckpointInfo& info : list_checkpoints(run_folder)) {
      if (fs::path(info.folder).filename() == newest.filename()) continue;
      if (++kept > keep) remove_checkpoint(info.folder);
    }
  } catch (const std::exception& error) {
    spdlog::warn("{} is saved, but: {}", newest.string(), error.what());
  }
}

}  // namespace

void save_checkpoint(Communicator& world, const MeshSizes& mesh, const std::string& run_folder,
                     const Progress& progress, const std::string& run_file,
                     const ParameterLayout& whole, const ParameterLayout& layout,
                     const StateShare& share, std::int64_t keep) {
  const bool leads = world.rank() == 0;
  const fs::path folder =
      fs::path(run_folder) / "checkpoints" / fmt::format("step_{:08}", progress.step);
  fs::path partial = folder;
  partial += ".partial";
  try {
    together(world, [&] {
      if (leads) prepare(partial);
    });
    StoredFile mine;
    together(world, [&] {
      const auto path = partial / fmt::format("shard_{:05}.h5", world.rank());
      mine = write_shard(path.string(), layout, share);
    });
    const std::vector<std::string> files = world.gather(to_text(mine), 0);
    together(world, [&] {
      if (!leads) return;
      Manifest manifest{library_version(), progress, mesh, run_file, tensors_of(whole), {}};
      for (const std::string& text : files) {
        const StoredFile file = stored_file_from(text);
        if (!file.name.empty()) manifest.files.push_back(file);
      }
      check_shards(partial.string(), manifest);
      write_manifest(partial.string(), manifest);
      publish(partial, folder);
    });
  } catch (const Error&) {
    std::error_code ignored;  // the space is wanted back; what is left goes with the next save
    if (leads) fs::remove_all(partial, ignored);
    throw;
  }
  if (leads) tidy(run_folder, folder, keep);
}

void save_checkpoint(Mesh& mesh, const std::string& run_folder, const Progress& progress,
                     const std::string& run_file, const ModelConfig& model,
                     const ParameterLayout& layout, const StateShare& share, std::int64_t keep) {
  save_checkpoint(mesh.world(), mesh.sizes(), run_folder, progress, run_file, layout_of(model),
                  layout, share, keep);
}

}  // namespace bdlm
