// SPDX-License-Identifier: Apache-2.0
// Finding checkpoints. The folders' names and manifests decide; `latest` is a hint for people.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "trainer/checkpoint.h"
#include "trainer/checkpoint_manifest.h"

namespace fs = std::filesystem;

namespace bdlm {
namespace {

/// step_XXXXXXXX, or one that was being replaced by a newer save of its step
/// (checkpoint_write.cpp).
bool named_like_a_checkpoint(const std::string& name) {
  std::string rest = name.substr(0, name.find('.'));
  const std::string prefix = "step_", suffix = name.substr(rest.size());
  if (rest.rfind(prefix, 0) != 0 || (!suffix.empty() && suffix != ".replaced")) return false;
  rest.erase(0, prefix.size());
  return !rest.empty() &&
         std::all_of(rest.begin(), rest.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool has_manifest(const std::string& folder) {
  std::error_code code;
  return fs::exists(manifest_path(folder), code);
}

CheckpointInfo info_of(const std::string& folder) {
  Manifest manifest = read_manifest(folder);
  return {folder, manifest.progress, std::move(manifest.run_file), manifest.mesh};
}

std::vector<CheckpointInfo> list_folder(const fs::path& checkpoints) {
  std::map<std::int64_t, CheckpointInfo> by_step;
  std::error_code code;
  std::vector<std::string> folders;
  for (const auto& entry : fs::directory_iterator(checkpoints, code)) {
    if (named_like_a_checkpoint(entry.path().filename().string()) &&
        has_manifest(entry.path().string())) {
      folders.push_back(entry.path().string());
    }
  }
  std::sort(folders.begin(), folders.end());  // a replaced one comes after its replacement
  for (const std::string& folder : folders) {
    try {
      CheckpointInfo info = info_of(folder);
      by_step.emplace(info.progress.step, std::move(info));
    } catch (const Error& error) {
      spdlog::warn("{}", error.what());
    }
  }
  std::vector<CheckpointInfo> newest_first;
  for (auto& [step, info] : by_step) newest_first.push_back(std::move(info));
  std::reverse(newest_first.begin(), newest_first.end());
  return newest_first;
}

}  // namespace

std::vector<CheckpointInfo> list_checkpoints(const std::string& run_folder) {
  return list_folder(fs::path(run_folder) / "checkpoints");
}

CheckpointInfo open_checkpoint(const std::string& path) {
  std::error_code code;
  require(fs::is_directory(path, code), "{} is not a folder: give a checkpoint or a run folder",
          path);
  if (has_manifest(path)) return info_of(path);
  const fs::path name = fs::path(path) / "";  // "step_00000010" and "step_00000010/" alike
  require(!named_like_a_checkpoint(name.parent_path().filename().string()),
          "{} has no manifest.json, so it was never finished: give another checkpoint", path);
  std::vector<CheckpointInfo> found = list_checkpoints(path);
  if (found.empty()) found = list_folder(path);
  require(!found.empty(), "{} holds no complete checkpoint (step_XXXXXXXX with a manifest.json)",
          path);
  return found.front();
}

}  // namespace bdlm
