// SPDX-License-Identifier: Apache-2.0
// bdlm doctor: what this build and this machine have, and what a run file still lacks here.
#include <cblas.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <hdf5.h>
#include <mpi.h>
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "cmd/commands.h"
#include "kernels/backend.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_manifest.h"
#include "trainer/console.h"
#include "trainer/run_config.h"
#include "trainer/threads.h"

namespace fs = std::filesystem;

namespace bdlm {
namespace {

#ifdef __clang__
constexpr const char* compiler = __VERSION__;
#else
constexpr const char* compiler = "GCC " __VERSION__;
#endif

void line(const std::string& what, const std::string& text) { fmt::print("{:12}{}\n", what, text); }

std::string mpi_text() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> name{};
  int length = 0, threads = 0;
  MPI_Get_library_version(name.data(), &length);
  MPI_Query_thread(&threads);
  const std::string text(name.data(), static_cast<std::size_t>(length));
  const char* support = threads == MPI_THREAD_MULTIPLE     ? "multiple"
                        : threads == MPI_THREAD_SERIALIZED ? "serialized"
                        : threads == MPI_THREAD_FUNNELED   ? "funneled"
                                                           : "single";
  return fmt::format("{}; thread support {}", text.substr(0, text.find_first_of(",\n")), support);
}

std::string hdf5_text() {
  unsigned major = 0, minor = 0, release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

std::string onednn_text() {
  const dnnl_version_t* version = dnnl_version();
  return fmt::format("{}.{}.{}", version->major, version->minor, version->patch);
}

std::string openblas_text() {
  const char* forced = std::getenv("OPENBLAS_CORETYPE");
  return fmt::format(
      "{}{}", openblas_get_config(),
      forced != nullptr ? fmt::format("; OPENBLAS_CORETYPE={} forces its kernels", forced) : "");
}

/// First value of a key of a /proc file; empty when there is none.
std::string proc_value(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    if (text.rfind(key, 0) != 0) continue;
    const std::size_t at = text.find_first_not_of(" \t", text.find(':') + 1);
    return at == std::string::npos ? "" : text.substr(at);
  }
  return {};
}

/// What bfloat16 is fast with; without any of these float32 is the better choice.
std::string features_text() {
  const std::string flags = " " + proc_value("/proc/cpuinfo", "flags") + " ";
  std::vector<std::string> found;
  for (const char* flag : {"avx2", "avx512f", "avx512_bf16", "amx_bf16"}) {
    if (flags.find(fmt::format(" {} ", flag)) != std::string::npos) found.push_back(flag);
  }
  return found.empty() ? "none of avx2, avx512f, avx512_bf16, amx_bf16"
                       : fmt::format("{}", fmt::join(found, ", "));
}

std::string memory_text() {
  const auto kib = [](const char* key) {
    const std::string text = proc_value("/proc/meminfo", key);
    return text.empty() ? 0.0 : 1024 * std::stod(text);
  };
  return fmt::format("{}, {} free for use", bytes_text(kib("MemTotal")),
                     bytes_text(kib("MemAvailable")));
}

/// The CUDA backend and its devices, or why there is none.
std::string cuda_text() {
  try {
    const Backend backend("cuda");
    std::string text = backend.versions();
    try {
      const int devices = backend.devices();
      for (int i = 0; i < devices; ++i) text += ", " + backend.device(i)->name();
    } catch (const Error& error) {
      text += fmt::format("; {}", error.what());
    }
    return text;
  } catch (const Error& error) {
    return fmt::format("none: {}", error.what());
  }
}

/// How many ranks and where. Collective.
std::string launch_text(const MpiSession& session, Communicator& world, const std::string& host) {
  const std::vector<std::string> hosts = world.gather(host, 0);
  if (session.rank() != 0) return {};
  std::vector<std::string> distinct = hosts;
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  const std::string text =
      fmt::format("{} rank{} on {} machine{} ({})", session.size(), session.size() == 1 ? "" : "s",
                  distinct.size(), distinct.size() == 1 ? "" : "s", fmt::join(distinct, ", "));
  return session.size() == 1 ? text + "; for more: mpirun -n N bdlm doctor" : text;
}

void print_machine(const std::string& launch, const Placement& own) {
  line("bdlm", fmt::format("{}, built with {}", library_version(), compiler));
  line("MPI", mpi_text());
  line("launch", launch);
  line("HDF5", hdf5_text());
  line("oneDNN", onednn_text());
  line("OpenBLAS", openblas_text());
  line("processor", proc_value("/proc/cpuinfo", "model name"));
  line("features", features_text());
  line("cores", fmt::format("{} of {} open to rank 0; OpenMP would start {} threads",
                            own.cores.size(), own.online, omp_get_max_threads()));
  line("memory", memory_text());
  line("CUDA", cuda_text());
}

/// Prints a line a check of the run file; returns how many did not pass.
class Checks {
 public:
  void check(bool good, const std::string& what, const std::string& remedy) {
    fmt::print("{:12}{}{}{}\n", good ? "ok" : "MISSING", what, good ? "" : ": ",
               good ? "" : remedy);
    missing_ += good ? 0 : 1;
  }
  int missing() const { return missing_; }

 private:
  int missing_ = 0;
};

bool readable(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

/// The nearest folder that exists decides whether the run folder can be made.
bool writable(fs::path folder) {
  folder = fs::absolute(folder);
  while (!fs::exists(folder) && folder.has_relative_path()) folder = folder.parent_path();
  return fs::is_directory(folder) && ::access(folder.c_str(), W_OK) == 0;
}

int check_run(const std::string& path, const std::vector<std::string>& overrides, int ranks) {
  fmt::print("\n{}\n", path);
  const RunConfig config = read_run_file(path, overrides, 0);
  Checks checks;
  checks.check(true, "run file: all keys and values are good", "");
  const MeshSizes& mesh = config.parallel.mesh;
  const int multiple = mesh.tensor * mesh.csbp * mesh.pipeline;
  checks.check(ranks % multiple == 0,
               fmt::format("ranks: {} started, a multiple of {} wanted", ranks, multiple),
               fmt::format("mpirun -n {} bdlm train {}", multiple, path));
  if (!config.model.from.empty()) {
    const std::string file = (fs::path(config.model.from) / "config.json").string();
    checks.check(readable(file), "model.from: " + file, "give a Hugging Face folder");
  }
  std::vector<std::string> files;
  for (const DataFile& file : config.data.train) files.push_back(file.path);
  if (!config.data.eval.empty()) files.push_back(config.data.eval);
  for (const std::string& file : files) {
    checks.check(readable(file), "data: " + file, "make it with bdlm data prepare");
  }
  if (config.run.device == DeviceKind::cuda) {
    std::string missing;
    try {
      Backend("cuda").devices();
    } catch (const Error& error) {
      missing = error.what();
    }
    checks.check(missing.empty(), "run.device: cuda", missing + "; or set cpu or auto");
  }
  checks.check(writable(config.run.folder), "run.folder: " + config.run.folder,
               "make it writable or set another");
  for (const CheckpointInfo& info : list_checkpoints(config.run.folder)) {
    line("checkpoint", fmt::format("{} (step {})", info.folder, info.progress.step));
  }
  return checks.missing();
}

struct DoctorArguments {
  std::string run_file;
  std::vector<std::string> overrides;
};

int run_doctor(const DoctorArguments& arguments, MpiSession& session) {
  const auto world = mpi_world(std::make_shared<Traffic>());
  const Placement own = own_placement();
  const std::string launch = launch_text(session, *world, own.host);
  if (session.rank() != 0) return 0;
  print_machine(launch, own);
  if (arguments.run_file.empty()) return 0;
  return check_run(arguments.run_file, arguments.overrides, session.size()) == 0 ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, Choice& choice) {
  auto* command =
      app.add_subcommand("doctor", "What this build and machine have, and what a run file lacks");
  auto arguments = std::make_shared<DoctorArguments>();
  command->add_option("run", arguments->run_file, "run file (YAML) to check")->type_name("FILE");
  command->add_option("--set", arguments->overrides, "section.key=value over the run file's")
      ->allow_extra_args(false);
  command->footer(
      "Example:\n"
      "  mpirun -n 4 bdlm doctor configs/quickstart.yaml\n"
      "Exit status 1 if the run file lacks something.");
  command->callback([arguments, &choice] {
    choice.run = [arguments](MpiSession& session) { return run_doctor(*arguments, session); };
  });
}

}  // namespace bdlm
