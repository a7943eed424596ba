// SPDX-License-Identifier: Apache-2.0
// Loading and verifying. Datasets that a share overlaps are read whole, slab by slab, so that their
// checksums can be checked; memory is bounded by a slab.
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "trainer/checkpoint.h"
#include "trainer/checkpoint_manifest.h"
#include "trainer/checkpoint_pieces.h"
#include "trainer/checkpoint_shard.h"

namespace fs = std::filesystem;

namespace bdlm {
namespace {

struct HashState {
  void operator()(XXH64_state_t* state) const { XXH64_freeState(state); }
};

/// Reads a dataset; Error when its values are not those that were written.
void read_checked(ShardReader& reader, const std::string& path, const StoredFile& file,
                  const StoredDataset& dataset, const ShardReader::Slab& slab) {
  const std::unique_ptr<XXH64_state_t, HashState> hash(XXH64_createState());
  XXH64_reset(hash.get(), 0);
  reader.read(dataset.name(), file.dtype, dataset.count(),
              [&](std::span<const std::byte> bytes, std::int64_t first) {
                XXH64_update(hash.get(), bytes.data(), bytes.size());
                slab(bytes, first);
              });
  require(XXH64_digest(hash.get()) == dataset.hash,
          "{} in {} was altered: its checksum is not the manifest's; use another checkpoint",
          dataset.name(), path);
}

template <class From, class To>
void convert(const std::byte* from, void* to, std::int64_t at, std::int64_t count) {
  const auto* source = reinterpret_cast<const From*>(from);
  std::transform(source, source + count, static_cast<To*>(to) + at,
                 [](From value) { return static_cast<To>(value); });
}

/// The runs' elements that lie in the slab. Ascending runs; f32 and f64 turn into each other.
void copy_runs(const std::vector<Run>& runs, std::span<const std::byte> bytes, std::int64_t first,
               DType stored, const Tensor& target) {
  const auto element = static_cast<std::int64_t>(size_of(stored));
  const std::int64_t end = first + static_cast<std::int64_t>(bytes.size()) / element;
  auto run = std::partition_point(runs.begin(), runs.end(),
                                  [&](const Run& r) { return r.source + r.count <= first; });
  for (; run != runs.end() && run->source < end; ++run) {
    const std::int64_t from = std::max(run->source, first);
    const std::int64_t count = std::min(run->source + run->count, end) - from;
    const std::int64_t to = run->target + from - run->source;
    const std::byte* source = bytes.data() + (from - first) * element;
    if (stored == DType::f64) {
      target.dtype == DType::f64 ? convert<double, double>(source, target.data, to, count)
                                 : convert<double, float>(source, target.data, to, count);
    } else {
      target.dtype == DType::f64 ? convert<float, double>(source, target.data, to, count)
                                 : convert<float, float>(source, target.data, to, count);
    }
  }
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// The model's tensors against the checkpoint's, all differences in one Error.
void check_tensors(const std::string& folder, const Manifest& manifest,
                   const ParameterLayout& layout) {
  std::map<std::string, std::vector<std::int64_t>> stored;
  for (const StoredTensor& tensor : manifest.tensors) stored[tensor.name] = tensor.shape;
  std::vector<std::string> wrong;
  for (const StoredTensor& tensor : tensors_of(layout)) {
    const auto found = stored.find(tensor.name);
    if (found == stored.end()) {
      wrong.push_back(fmt::format("{} is missing", tensor.name));
      continue;
    }
    if (found->second != tensor.shape) {
      wrong.push_back(fmt::format("{} is {}, the model's is {}", tensor.name,
                                  shape_text(found->second), shape_text(tensor.shape)));
    }
    stored.erase(found);
  }
  for (const auto& [name, shape] : stored) {
    wrong.push_back(fmt::format("{} {} is not in the model", name, shape_text(shape)));
  }
  if (wrong.empty()) return;
  constexpr std::size_t shown = 8;
  const std::size_t more = wrong.size() - std::min(wrong.size(), shown);
  wrong.resize(std::min(wrong.size(), shown));
  fail("{} is of another model: {}{}; use the run file that it holds (bdlm checkpoint inspect)",
       folder, fmt::join(wrong, "; "), more > 0 ? fmt::format("; and {} more", more) : "");
}

/// What is wrong with how a kind of state covers the tensors; one line a tensor.
std::vector<std::string> coverage_errors(const Manifest& manifest, StateKind kind) {
  std::map<std::string, std::vector<Box>> boxes;
  for (const StoredTensor& tensor : manifest.tensors) boxes[tensor.name];
  std::vector<std::string> wrong;
  for (const StoredFile& file : manifest.files) {
    for (const StoredDataset& dataset : file.datasets) {
      if (dataset.kind != kind) continue;
      const auto known = boxes.find(dataset.tensor);
      if (known == boxes.end()) {
        wrong.push_back(fmt::format("{} in {} is of an unknown tensor", dataset.name(), file.name));
        continue;
      }
      known->second.insert(known->second.end(), dataset.boxes.begin(), dataset.boxes.end());
    }
  }
  for (const StoredTensor& tensor : manifest.tensors) {
    const std::string text = coverage_error(boxes[tensor.name], tensor.rows(), tensor.cols());
    if (!text.empty()) wrong.push_back(fmt::format("{}/{}: {}", name_of(kind), tensor.name, text));
  }
  return wrong;
}

bool holds(const Manifest& manifest, StateKind kind) {
  for (const StoredFile& file : manifest.files) {
    for (const StoredDataset& dataset : file.datasets) {
      if (dataset.kind == kind) return true;
    }
  }
  return false;
}

}  // namespace

void load_checkpoint(const CheckpointInfo& info, const ModelConfig& model,
                     const ParameterLayout& layout, bool moments, const StateShare& share) {
  load_checkpoint(info, layout_of(model), layout, moments, share);
}

void load_checkpoint(const CheckpointInfo& info, const ParameterLayout& whole,
                     const ParameterLayout& layout, bool moments, const StateShare& share) {
  const Manifest manifest = read_manifest(info.folder);
  check_tensors(info.folder, manifest, whole);
  const std::map<StateKind, Tensor> targets =
      moments ? std::map<StateKind, Tensor>{{StateKind::master, share.master},
                                            {StateKind::first, share.first},
                                            {StateKind::second, share.second}}
              : std::map<StateKind, Tensor>{{StateKind::master, share.master}};
  std::int64_t count = 0;
  for (const FlatRange& part : share.parts) count += part.count;
  for (const auto& [kind, target] : targets) {
    require(target.size() == count, "share of {} elements with a {} of {}", count, name_of(kind),
            target.size());
    require(holds(manifest, kind), "{} holds no optimizer state ({}): load its weights only",
            info.folder, name_of(kind));
    const std::vector<std::string> wrong = coverage_errors(manifest, kind);
    require(wrong.empty(), "{}: {}; use another checkpoint", info.folder,
            wrong.empty() ? "" : wrong.front());
    // gaps between tensors are nowhere stored
    std::fill_n(static_cast<std::byte*>(target.data),
                target.size() * static_cast<std::int64_t>(size_of(target.dtype)), std::byte{0});
  }
  check_shards(info.folder, manifest);

  std::map<std::string, TensorPieces> wanted;
  for (TensorPieces& pieces : pieces_of(layout, share.parts)) {
    wanted.emplace(pieces.tensor->name, std::move(pieces));
  }
  for (const StoredFile& file : manifest.files) {
    std::optional<ShardReader> reader;  // opened when something in it is wanted
    const std::string path = (fs::path(info.folder) / file.name).string();
    for (const StoredDataset& dataset : file.datasets) {
      const auto target = targets.find(dataset.kind);
      const auto pieces = wanted.find(dataset.tensor);
      if (target == targets.end() || pieces == wanted.end()) continue;
      std::vector<Run> runs;
      std::int64_t source = 0;
      for (const Box& box : dataset.boxes) {
        for (const StoredPiece& piece : pieces->second.pieces) {
          append_runs(box, source, piece.box, piece.first, runs);
        }
        source += box.size();
      }
      if (runs.empty()) continue;
      std::sort(runs.begin(), runs.end(),
                [](const Run& a, const Run& b) { return a.source < b.source; });
      if (!reader) reader.emplace(path);
      read_checked(*reader, path, file, dataset,
                   [&](std::span<const std::byte> bytes, std::int64_t first) {
                     copy_runs(runs, bytes, first, file.dtype, target->second);
                   });
    }
  }
}

std::string verify_checkpoint(const CheckpointInfo& info) {
  std::vector<std::string> wrong;
  const auto note = [&](const std::string& text) {
    if (!text.empty()) wrong.push_back(text);
  };
  try {
    const Manifest manifest = read_manifest(info.folder);
    for (StateKind kind : state_kinds) {
      if (!holds(manifest, kind) && kind != StateKind::master) continue;
      for (const std::string& text : coverage_errors(manifest, kind)) note(text);
    }
    for (const StoredFile& file : manifest.files) {
      const std::string error = shard_error(info.folder, file);
      note(error);
      if (!error.empty()) continue;
      const std::string path = (fs::path(info.folder) / file.name).string();
      ShardReader reader(path);
      for (const StoredDataset& dataset : file.datasets) {
        try {
          read_checked(reader, path, file, dataset, [](auto, auto) {});
        } catch (const Error& error_of_dataset) {
          note(error_of_dataset.what());
        }
      }
    }
  } catch (const Error& error) {
    note(error.what());
  }
  return fmt::format("{}", fmt::join(wrong, "\n"));
}

}  // namespace bdlm
