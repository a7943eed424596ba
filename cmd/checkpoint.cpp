// SPDX-License-Identifier: Apache-2.0
// bdlm checkpoint: shows what is in a checkpoint, checks all of it. Rank 0 works alone.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>

#include "cmd/commands.h"
#include "trainer/checkpoint_manifest.h"
#include "trainer/console.h"

namespace bdlm {
namespace {

struct InspectOptions {
  std::string path;
  bool run_file = false;
};

void print_summary(const std::string& folder, const Manifest& manifest) {
  const Progress& progress = manifest.progress;
  const MeshSizes& mesh = manifest.mesh;
  std::set<std::string> state;
  std::int64_t bytes = 0, parameters = 0;
  for (const StoredFile& file : manifest.files) {
    bytes += file.bytes;
    for (const StoredDataset& dataset : file.datasets) {
      state.insert(fmt::format("{} {}", name_of(dataset.kind), name_of(file.dtype)));
    }
  }
  for (const StoredTensor& tensor : manifest.tensors) parameters += tensor.rows() * tensor.cols();
  fmt::print("checkpoint  {}\n", folder);
  fmt::print(
      "written by  bdlm {} on {} ranks: csbp {}, data {}, tensor {}, pipeline {}, expert {}\n",
      manifest.version, mesh.ranks(), mesh.csbp, mesh.data, mesh.tensor, mesh.pipeline,
      mesh.expert);
  fmt::print("progress    step {} ({} updates, {} skipped), {} rows, {} tokens\n", progress.step,
             progress.updates, progress.skips, progress.rows, progress.tokens);
  fmt::print("state       {}\n", fmt::join(state, ", "));
  fmt::print("size        {} tensors, {} parameters, {} in {} shards\n", manifest.tensors.size(),
             parameters, bytes_text(static_cast<double>(bytes)), manifest.files.size());
}

void print_tensors(const Manifest& manifest) {
  std::map<std::string, std::size_t> shards;
  for (const StoredFile& file : manifest.files) {
    for (const StoredDataset& dataset : file.datasets) {
      shards[dataset.tensor] += dataset.kind == StateKind::master ? 1 : 0;
    }
  }
  std::size_t width = 6;
  for (const StoredTensor& tensor : manifest.tensors) width = std::max(width, tensor.name.size());
  fmt::print("\n{:{}}  {:>16}  {:>12}  shards\n", "tensor", width, "shape", "parameters");
  for (const StoredTensor& tensor : manifest.tensors) {
    fmt::print("{:{}}  {:>16}  {:>12}  {}\n", tensor.name, width,
               fmt::format("{}", fmt::join(tensor.shape, " x ")), tensor.rows() * tensor.cols(),
               shards[tensor.name]);
  }
}

int run_inspect(const InspectOptions& options) {
  const CheckpointInfo info = open_checkpoint(options.path);
  if (options.run_file) {
    fmt::print("{}", info.run_file);
    return 0;
  }
  const Manifest manifest = read_manifest(info.folder);
  print_summary(info.folder, manifest);
  print_tensors(manifest);
  return 0;
}

int run_verify(const std::string& path) {
  const CheckpointInfo info = open_checkpoint(path);
  const std::string wrong = verify_checkpoint(info);
  if (wrong.empty()) {
    fmt::print("{}: step {} is complete, every checksum is right\n", info.folder,
               info.progress.step);
    return 0;
  }
  fmt::print("{}\n", wrong);
  return 1;
}

template <class Work>
auto alone(Work work) {
  return [work](MpiSession& session) { return session.rank() == 0 ? work() : 0; };
}

}  // namespace

void add_checkpoint(CLI::App& app, Choice& choice) {
  auto* command = app.add_subcommand("checkpoint", "Show or check a checkpoint");
  command->require_subcommand(1);
  command->footer("Example:\n  bdlm checkpoint inspect runs/quickstart");

  auto* inspect = command->add_subcommand("inspect", "Progress, topology, tensors and sizes");
  auto options = std::make_shared<InspectOptions>();
  inspect->add_option("path", options->path, "checkpoint, or run folder: its newest complete one")
      ->required()
      ->type_name("FOLDER");
  inspect->add_flag("--run-file", options->run_file, "Print the run file that it holds instead");
  inspect->footer(
      "Example:\n"
      "  bdlm checkpoint inspect runs/quickstart/checkpoints/step_00001500\n"
      "  bdlm checkpoint inspect runs/quickstart --run-file > again.yaml");
  inspect->callback(
      [=, &choice] { choice.run = alone([options] { return run_inspect(*options); }); });

  auto* verify = command->add_subcommand("verify", "Read everything and compare the checksums");
  auto path = std::make_shared<std::string>();
  verify->add_option("path", *path, "checkpoint, or run folder: its newest complete one")
      ->required()
      ->type_name("FOLDER");
  verify->footer(
      "Example:\n  bdlm checkpoint verify runs/quickstart\nExit status 1 if it is damaged.");
  verify->callback([=, &choice] { choice.run = alone([path] { return run_verify(*path); }); });
}

}  // namespace bdlm
