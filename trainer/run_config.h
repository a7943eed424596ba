// SPDX-License-Identifier: Apache-2.0
// A run file as a value. What each key means, its default, unit and range stand once, in
// trainer/options.cpp; docs/configuration.md, --help-config and validation are made from there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/objective.h"
#include "kernels/error.h"
#include "kernels/tensor.h"
#include "model/config.h"
#include "model/recompute.h"
#include "parallel/mesh.h"
#include "parallel/pipeline_schedule.h"
#include "parallel/plan.h"

namespace bdlm {

enum class DeviceKind : std::uint8_t { automatic, cpu, cuda, emu };
enum class Residual : std::uint8_t { compute, float32 };
enum class WeightSource : std::uint8_t { load, random };
enum class ScheduleKind : std::uint8_t { constant, linear, cosine, wsd };
enum class KeepRemote : std::uint8_t { automatic, yes, no };
enum class Resume : std::uint8_t { automatic, never, path };

struct RunSection {
  std::string name = "run";
  std::string folder = "runs/{name}";  // of metrics, checkpoints, the resolved run file
  std::int64_t steps = 1000;
  std::int64_t seed = 1;
  DeviceKind device = DeviceKind::automatic;
  DType dtype = DType::f32;
  Residual residual = Residual::compute;  // dtype of the residual stream
  int threads = 0;  // CPU threads a rank; 0: cores / local ranks
};

struct ModelSection {
  std::string from;  // Hugging Face folder; empty: the inline fields
  WeightSource weights = WeightSource::random;
  ModelConfig config;  // complete
};

struct DataFile {
  std::string path;
  double weight = 1;
};

struct DataSection {
  std::vector<DataFile> train;     // one file, or a blend with weights
  std::string eval;                // may be empty
  std::int64_t row_tokens = 4096;  // T: longest packed row
  std::int64_t window = 64;        // documents that first-fit looks at when it fills a row
  std::int64_t prefetch = 2;       // micro-batches made ahead
};

struct BatchSection {
  std::int64_t rows = 8;           // packed rows a step, all replicas together
  std::int64_t micro_rows = 1;     // packed rows a forward pass
  std::int64_t loss_chunk = 1024;  // rows of logits held at once
};

struct OptimizerSection {
  std::string name = "adamw";
  double lr = 3e-4, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip_grad_norm = 1;  // 0: no clipping
};

struct ScheduleSection {
  ScheduleKind kind = ScheduleKind::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t decay_steps = 0;  // wsd: length of the last phase; linear, cosine: 0 = to the end
  double min_lr_ratio = 0;       // of lr, at the end
};

struct ParallelSection {
  MeshSizes mesh;  // data is what is left of the world
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  int virtual_stages = 1;  // chunks a rank
  int zero = 1;
  PlanOptions plan;  // sharding, deal, exchange, elide
  KeepRemote keep_remote_kv = KeepRemote::automatic;
  Transport transport = Transport::automatic;
  double bucket_mib = 8;  // of gradient reduction and parameter gathering
};

struct CheckpointSection {
  std::int64_t every = 0;  // steps; 0: only at the end and on a signal
  std::int64_t keep = 2;   // newest that are not deleted; 0: all
  Resume resume = Resume::automatic;
  std::string resume_path;
};

struct LogSection {
  std::int64_t every = 10;  // steps
  bool tensorboard = true;
  bool progress = true;  // a bar, on a terminal only
};

struct EvalSection {
  std::int64_t every = 0;  // steps; 0: only at the end
  std::int64_t rows = 0;   // packed rows of the evaluation file; 0: all
  std::int64_t draws = 1;  // of the noise, a row
};

struct FaultSection {
  std::int64_t max_skips = 10;  // non-finite steps in a row
  double timeout = 600;         // seconds that a rank may not answer
};

struct RunConfig {
  RunSection run;
  ModelSection model;
  Objective objective;
  std::string preset;
  DataSection data;
  BatchSection batch;
  OptimizerSection optimizer;
  ScheduleSection schedule;
  ParallelSection parallel;
  std::vector<Recompute> recompute;  // a layer each
  CheckpointSection checkpoint;
  LogSection log;
  EvalSection eval;
  FaultSection fault;
};

/// The keys are good but for `parallel`: the launch or the model cannot be cut as it says.
class UnfitMesh : public Error {
 public:
  using Error::Error;
};

/// A YAML text with its place, and `--set section.key=value` words on top. All that is wrong is
/// reported in one Error (UnfitMesh where it is only that), a line each with file:line, the key and
/// the nearest known key. Paths are
/// made relative to the file's folder. `world`: ranks of this launch, for the checks that need it
/// (0: not known, for bdlm plan without --ranks and for printing).
RunConfig parse_run_file(const std::string& text, const std::string& path,
                         const std::vector<std::string>& overrides, int world);
RunConfig read_run_file(const std::string& path, const std::vector<std::string>& overrides,
                        int world);

/// The complete resolved run file: parse_run_file(print_run_file(c)) == c.
std::string print_run_file(const RunConfig& config);

/// The option table as text for --help-config, and as the page docs/configuration.md.
std::string describe_options();
std::string options_markdown();

}  // namespace bdlm
