// SPDX-License-Identifier: Apache-2.0
// The manifest as JSON, with a checksum of its own.
#include "trainer/checkpoint_manifest.h"

#include <xxhash.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "kernels/error.h"
#include "trainer/checkpoint_files.h"

namespace bdlm {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* format_name = "bdlm.checkpoint/1";

std::string hex(std::uint64_t value) { return fmt::format("{:016x}", value); }

/// Over the text without spaces of everything but the checksum itself, so that indenting is free.
std::string checksum(const Json& manifest) {
  Json rest = manifest;
  rest.erase("xxh64");
  const std::string text = rest.dump();
  return hex(XXH64(text.data(), text.size(), 0));
}

Json json_of(const StoredFile& file) {
  Json datasets = Json::array();
  for (const StoredDataset& dataset : file.datasets) {
    Json boxes = Json::array();
    for (const Box& box : dataset.boxes) boxes.push_back({box.row, box.col, box.rows, box.cols});
    datasets.push_back({{"name", dataset.name()}, {"boxes", boxes}, {"xxh64", hex(dataset.hash)}});
  }
  return {{"name", file.name},
          {"bytes", file.bytes},
          {"dtype", file.dtype == DType::f64 ? "float64" : "float32"},
          {"datasets", datasets}};
}

StoredDataset dataset_from(const Json& json) {
  StoredDataset dataset;
  const std::string name = json.at("name");
  const std::size_t slash = name.find('/');
  bool known = false;
  for (StateKind kind : state_kinds) {
    if (name.substr(0, slash) != name_of(kind)) continue;
    dataset.kind = kind;
    known = true;
  }
  require(known && slash != std::string::npos, "unknown dataset {}", name);
  dataset.tensor = name.substr(slash + 1);
  for (const Json& box : json.at("boxes")) {
    dataset.boxes.push_back({box.at(0), box.at(1), box.at(2), box.at(3)});
  }
  dataset.hash = std::stoull(json.at("xxh64").get<std::string>(), nullptr, 16);
  return dataset;
}

StoredFile file_from(const Json& json) {
  StoredFile file;
  file.name = json.at("name");
  file.bytes = json.at("bytes");
  const std::string dtype = json.at("dtype");
  require(dtype == "float32" || dtype == "float64", "unknown dtype {}", dtype);
  file.dtype = dtype == "float64" ? DType::f64 : DType::f32;
  for (const Json& dataset : json.at("datasets")) file.datasets.push_back(dataset_from(dataset));
  return file;
}

Json json_of(const Manifest& manifest) {
  const Progress& progress = manifest.progress;
  const MeshSizes& mesh = manifest.mesh;
  Json tensors = Json::array(), files = Json::array();
  for (const StoredTensor& tensor : manifest.tensors) {
    tensors.push_back({{"name", tensor.name}, {"shape", tensor.shape}});
  }
  for (const StoredFile& file : manifest.files) files.push_back(json_of(file));
  return {{"format", format_name},
          {"version", manifest.version},
          {"progress",
           {{"step", progress.step},
            {"rows", progress.rows},
            {"updates", progress.updates},
            {"skips", progress.skips},
            {"tokens", progress.tokens}}},
          {"mesh",
           {{"tensor", mesh.tensor},
            {"csbp", mesh.csbp},
            {"data", mesh.data},
            {"pipeline", mesh.pipeline},
            {"expert", mesh.expert}}},
          {"tensors", tensors},
          {"files", files},
          {"run_file", manifest.run_file}};
}

Manifest manifest_from(const Json& json) {
  Manifest manifest;
  manifest.version = json.at("version");
  const Json& progress = json.at("progress");
  manifest.progress = {progress.at("step"), progress.at("rows"), progress.at("updates"),
                       progress.at("skips"), progress.at("tokens")};
  const Json& mesh = json.at("mesh");
  manifest.mesh = {mesh.at("tensor"), mesh.at("csbp"), mesh.at("data"), mesh.at("pipeline"),
                   mesh.at("expert")};
  for (const Json& tensor : json.at("tensors")) {
    manifest.tensors.push_back({tensor.at("name"), tensor.at("shape")});
    const std::size_t dimensions = manifest.tensors.back().shape.size();
    require(dimensions == 1 || dimensions == 2, "tensor of {} dimensions", dimensions);
  }
  for (const Json& file : json.at("files")) manifest.files.push_back(file_from(file));
  manifest.run_file = json.at("run_file");
  return manifest;
}

}  // namespace

const char* library_version() { return BDLM_VERSION; }

const char* name_of(StateKind kind) {
  return kind == StateKind::master ? "master" : kind == StateKind::first ? "first" : "second";
}

std::int64_t StoredDataset::count() const {
  std::int64_t sum = 0;
  for (const Box& box : boxes) sum += box.size();
  return sum;
}

std::string to_text(const StoredFile& file) { return json_of(file).dump(); }

StoredFile stored_file_from(const std::string& text) { return file_from(Json::parse(text)); }

std::vector<std::int64_t> shape_of(const Parameter& tensor) {
  if (tensor.vector) return {tensor.whole_cols};
  return {tensor.whole_rows, tensor.whole_cols};
}

std::vector<StoredTensor> tensors_of(const ParameterLayout& layout) {
  std::vector<StoredTensor> tensors;
  for (const Parameter& tensor : layout.tensors) tensors.push_back({tensor.name, shape_of(tensor)});
  return tensors;
}

std::string manifest_path(const std::string& folder) {
  return (std::filesystem::path(folder) / "manifest.json").string();
}

void write_manifest(const std::string& folder, const Manifest& manifest) {
  Json json = json_of(manifest);
  json["xxh64"] = checksum(json);
  replace_file(manifest_path(folder), json.dump() + "\n");
}

Manifest read_manifest(const std::string& folder) {
  const std::string path = manifest_path(folder);
  const std::string text = read_file(path);
  try {
    const Json json = Json::parse(text);
    const std::string format = json.at("format");
    require(format == format_name, "its format is '{}', this program reads {}", format,
            format_name);
    require(json.at("xxh64") == checksum(json), "its checksum is not that of its content");
    return manifest_from(json);
  } catch (const std::exception& error) {
    fail("{} is not a usable manifest: {}; use another checkpoint", path, error.what());
  }
}

std::string shard_error(const std::string& folder, const StoredFile& file) {
  const std::filesystem::path path = std::filesystem::path(folder) / file.name;
  std::error_code code;
  const auto bytes = std::filesystem::file_size(path, code);
  if (code) return fmt::format("{} is missing ({})", path.string(), code.message());
  if (static_cast<std::int64_t>(bytes) == file.bytes) return {};
  return fmt::format("{} has {} bytes, not {}: it was {}", path.string(), bytes, file.bytes,
                     static_cast<std::int64_t>(bytes) < file.bytes ? "truncated" : "altered");
}

void check_shards(const std::string& folder, const Manifest& manifest) {
  for (const StoredFile& file : manifest.files) {
    const std::string error = shard_error(folder, file);
    require(error.empty(), "{}", error);
  }
}

}  // namespace bdlm
